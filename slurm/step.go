package slurm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// readStep reads a task's place in its step. Inside srun SLURM_JOB_NODELIST is still the job's while
// SLURM_TASKS_PER_NODE is the step's. If the two are mixed up, their lengths disagree.
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
	return a.readTask(env, nodelist, counts)
}

// taskCounts is a variable that holds task counts, and what it means.
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
	list, err := ParseTaskCounts(v.value)
	if err != nil {
		return taskCounts{}, fmt.Errorf("%s: %w", v.name, err)
	}
	total := 0
	for _, n := range list {
		total += n // at most MaxNodes counts of 16 bits
	}
	return taskCounts{v, list, total}, nil
}

// setTasks sets the sizes of the step, after checking the variables against each other.
func (a *Allocation) setTasks(env environ, nodelist variable, counts taskCounts) (err error) {
	if len(counts.list) != len(a.Nodes) {
		return fmt.Errorf("%s names %d nodes, but %s counts the tasks of %d", nodelist, len(a.Nodes), counts, len(counts.list))
	}
	for i, n := range counts.list {
		if n == 0 {
			return fmt.Errorf("%s gives 0 tasks to node %s of %s", counts, a.Nodes[i], nodelist)
		}
	}
	names := []string{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}
	if a.Tasks, err = env.numberOr(counts.total, names...); err != nil {
		return err
	}
	if a.Tasks != counts.total {
		v, _ := env.first(names...)
		return fmt.Errorf("%s, but the counts in %s add up to %d", v, counts, counts.total)
	}
	a.TasksPerNode = counts.list
	return nil
}

// readTask reads which task of the step this is. It does not derive the node and the local rank from SLURM_PROCID:
// in a cyclic or arbitrary layout a node's ranks are not consecutive.
func (a *Allocation) readTask(env environ, nodelist variable, counts taskCounts) (err error) {
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
		return fmt.Errorf("SLURM_PROCID is %d, but %s counts only %d tasks", a.ProcID, counts, a.Tasks)
	}
	if here := a.TasksPerNode[a.NodeRank]; a.LocalID >= here {
		return fmt.Errorf("SLURM_LOCALID is %d, but %s counts only %d for node %s", a.LocalID, counts, here, a.NodeName())
	}
	return nil
}

// MaxHetSize is the most components that Slurm gives a heterogeneous job (MAX_HET_JOB_COMPS in slurm.h).
const MaxHetSize = 128

// orderByComponent puts the nodes of a heterogeneous job's step, and the counts of their tasks, into the order of SLURM_NODEID. That
// order goes component by component, while the step's lists have all of its nodes sorted by name (seen in Slurm 22.05). The two differ if
// the name of a node of a later component sorts before one of an earlier component. Every task knows the nodes of each component.
func (a *Allocation) orderByComponent(env environ) error {
	size, err := env.numberOr(0, "SLURM_HET_SIZE")
	if err != nil || size < 2 {
		return err
	}
	if size > MaxHetSize {
		return fmt.Errorf("SLURM_HET_SIZE is %d, but a job of Slurm has at most %d components", size, MaxHetSize)
	}
	left := make(map[string]int, len(a.Nodes)) // indices into Nodes
	for i, name := range a.Nodes {
		left[name] = i
	}
	var order []int
	for component := range size {
		list, set := env.first("SLURM_JOB_NODELIST_HET_GROUP_" + strconv.Itoa(component))
		if !set {
			return nil // the order is unknown; readTask still checks SLURM_NODEID against SLURMD_NODENAME
		}
		names, err := ExpandHostlist(list.value, MaxNodes)
		if err != nil {
			return fmt.Errorf("%s: %w", list.name, err)
		}
		for _, name := range names {
			if i, ok := left[name]; ok { // the step need not have all components
				order = append(order, i)
				delete(left, name)
			}
		}
	}
	if len(order) != len(a.Nodes) {
		return nil // as above
	}
	nodes, counts := make([]string, len(order)), make([]int, len(order))
	for to, from := range order {
		nodes[to], counts[to] = a.Nodes[from], a.TasksPerNode[from]
	}
	a.Nodes, a.TasksPerNode = nodes, counts
	return nil
}

// errNotSet marks the error that none of the variables is set.
var errNotSet = errors.New("is not set; was the environment cleared (env -i, a container)?")

// environ looks up a variable of the environment, as os.LookupEnv does.
type environ func(string) (string, bool)

// variable is a variable that is set. It prints as NAME="value", shortened if it is long.
type variable struct{ name, value string }

func (v variable) String() string { return v.name + "=" + clip(v.value) }

// first returns the first of the variables that is set and not empty.
func (e environ) first(names ...string) (variable, bool) {
	for _, name := range names {
		if value, ok := e(name); ok && value != "" && value != "(null)" {
			return variable{name, value}, true
		}
	}
	return variable{}, false
}

// need is like first, but returns an error that names all variables if none is set.
func (e environ) need(names ...string) (variable, error) {
	if v, ok := e.first(names...); ok {
		return v, nil
	}
	return variable{}, fmt.Errorf("%s %w", strings.Join(names, " or "), errNotSet)
}

// number parses a whole number that is not negative from the first variable that is set.
func (e environ) number(names ...string) (int, error) {
	v, err := e.need(names...)
	if err != nil {
		return 0, err
	}
	n, err := parseInt(v.value)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", v.name, err)
	}
	return n, nil
}

// numberOr is like number, but returns absent if none of the variables is set.
func (e environ) numberOr(absent int, names ...string) (int, error) {
	n, err := e.number(names...)
	if errors.Is(err, errNotSet) {
		return absent, nil
	}
	return n, err
}

// id returns one of Slurm's ids, which have 32 bits, as text, or "" if the variable is not set.
func (e environ) id(name string) (string, error) {
	v, set := e.first(name)
	if !set {
		return "", nil
	}
	if _, err := strconv.ParseUint(v.value, 10, 32); err != nil {
		return "", fmt.Errorf("%s is not an id of Slurm", v)
	}
	return v.value, nil
}
