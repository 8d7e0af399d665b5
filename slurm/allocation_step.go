package slurm

import "fmt"

// readStep reads a task's place in its step. Inside srun SLURM_JOB_NODELIST stays the job's while
// SLURM_TASKS_PER_NODE becomes the step's; a mixture shows as lengths that disagree.
func (a *Allocation) readStep(env environ) error {
	nodelist, err := a.readNodes(env, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
	if err != nil {
		return err
	}
	counts, err := readCounts(env, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
	if err != nil {
		return err
	}
	if err := a.setTasks(env, nodelist, counts); err != nil {
		return err
	}
	if err := a.orderByComponent(env); err != nil {
		return err
	}
	return a.readPlace(env, nodelist, counts)
}

// taskCounts is a variable of task counts as read.
type taskCounts struct {
	variable
	list  []int
	total int
}

func readCounts(env environ, names ...string) (taskCounts, error) {
	v, err := env.need(names...)
	if err != nil {
		return taskCounts{}, err
	}
	list, err := ParseTaskCounts(v.value, MaxNodes)
	if err != nil {
		return taskCounts{}, fmt.Errorf("%s: %w", v.name, err)
	}
	total := 0
	for _, n := range list {
		total += n // at most MaxNodes counts of 16 bits
	}
	return taskCounts{v, list, total}, nil
}

// setTasks sets the sizes of the step, after holding the variables against each other.
func (a *Allocation) setTasks(env environ, nodelist variable, counts taskCounts) (err error) {
	if len(counts.list) != len(a.Nodes) {
		return fmt.Errorf("%s names %d nodes, but %s counts the tasks of %d", nodelist, len(a.Nodes), counts, len(counts.list))
	}
	for i, n := range counts.list {
		if n == 0 {
			return fmt.Errorf("%s leaves node %s of %s without a task", counts, a.Nodes[i], nodelist)
		}
	}
	names := []string{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}
	if a.Tasks, err = env.numberOr(counts.total, names...); err != nil {
		return err
	}
	if a.Tasks != counts.total {
		v, _ := env.first(names...)
		return fmt.Errorf("%s, but the counts in %s make %d", v, counts, counts.total)
	}
	a.TasksPerNode = counts.list
	return nil
}

// readPlace reads which task of the step this is. It is never derived from SLURM_PROCID alone:
// where the layout is cyclic or arbitrary, a node's ranks do not follow on each other.
func (a *Allocation) readPlace(env environ, nodelist variable, counts taskCounts) (err error) {
	if a.NodeRank, err = env.number("SLURM_NODEID"); err != nil {
		return err
	}
	if a.ProcID, err = env.number("SLURM_PROCID"); err != nil {
		return err
	}
	if a.LocalID, err = env.number("SLURM_LOCALID"); err != nil {
		return err
	}
	if a.NodeRank >= len(a.Nodes) {
		return fmt.Errorf("SLURM_NODEID is %d, but %s names only %d nodes", a.NodeRank, nodelist, len(a.Nodes))
	}
	if name, set := env.first("SLURMD_NODENAME"); set && name.value != a.NodeName() {
		return fmt.Errorf("%s, but SLURM_NODEID is %d and that node of %s is %s", name, a.NodeRank, nodelist, a.NodeName())
	}
	if a.ProcID >= a.Tasks {
		return fmt.Errorf("SLURM_PROCID is %d, but %s makes only %d tasks", a.ProcID, counts, a.Tasks)
	}
	if here := a.TasksPerNode[a.NodeRank]; a.LocalID >= here {
		return fmt.Errorf("SLURM_LOCALID is %d, but %s makes only %d for node %s", a.LocalID, counts, here, a.NodeName())
	}
	return nil
}

// CheckLayout tells that rank 0 is not on the step's first node, where the other tasks look for it, as far as this task can know: the task
// that is rank 0 does, and so does the first of the first node, as Slurm numbers the tasks of a node in the order of their ranks. Only
// "-m arbitrary" lays tasks out so, and no variable tells the others.
func (a *Allocation) CheckLayout() error {
	switch {
	case !a.InStep():
		return nil
	case a.ProcID == 0 && a.NodeRank != 0:
		return fmt.Errorf("SLURM_PROCID is 0 on %s, but the other tasks look for rank 0 on %s, the step's first node: begin the list of hosts with %s",
			a.NodeName(), a.Nodes[0], a.Nodes[0])
	case a.NodeRank == 0 && a.LocalID == 0 && a.ProcID != 0:
		return fmt.Errorf("the first task on %s, the step's first node, has SLURM_PROCID %d, but the others look for rank 0 there: begin the list of hosts with %s",
			a.Nodes[0], a.ProcID, a.Nodes[0])
	}
	return nil
}
