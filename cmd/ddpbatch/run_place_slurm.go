package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
	"ddpbatch/slurm/pmi2"
)

func placeBySlurm(e *env, o *runOptions, w *workers, alloc *slurm.Allocation, cfg *launch.AgentConfig) (err error) {
	if !alloc.InStep() && (len(alloc.Nodes) > 1 || alloc.Tasks > 1) {
		return &usageError{
			message: fmt.Sprintf("this is a batch script or a job's shell, and the job has %s and %s",
				plural(len(alloc.Nodes), "node"), plural(alloc.Tasks, "task")),
			hint: "start it with srun, or pass --standalone for this node alone",
		}
	}
	if err := o.agreesWith(alloc); err != nil {
		return err
	}
	cfg.Declines = cmp.Or(o.agreesOnRank(alloc), o.agreesOnMaster(alloc))
	cfg.OneMachine = alloc.Addresses != nil
	cfg.JobID, cfg.Restarts, cfg.RunID = jobIDOf(e), alloc.Restarts, alloc.Key()
	cfg.MasterAddr, cfg.Ports = alloc.Address(0), launch.Ports(alloc.Key(), meetingPorts)
	if o.has("master-port") {
		cfg.MasterPort = o.masterPort
		cfg.Ports = launch.Ports(fmt.Sprint(alloc.Key(), "/", o.masterPort), meetingPorts) // others, where somebody holds those
	}
	if name := alloc.NodeName(); name != "" {
		cfg.Host = name
	}
	if alloc.TaskMode() {
		if err := o.agreesWithTasks(alloc); err != nil {
			return err
		}
		cfg.Index, cfg.Count, cfg.Layout = alloc.ProcID, alloc.Tasks, make(map[string]int)
		for node, name := range alloc.Nodes {
			cfg.Layout[name] = alloc.TasksPerNode[node]
		}
		cfg.Local = []launch.Place{taskPlace(alloc)}
		cfg.CPUsPerTask = cpusPerTask(e)
		cfg.MinCount = 0 // the tasks are the ranks, and Slurm has numbered them
	} else {
		cfg.Index, cfg.Count, cfg.Hosts = max(0, alloc.NodeRank), len(alloc.Nodes), alloc.Nodes
		if cfg.Nproc, err = w.nproc.On(cfg.Index, e.lookup); err != nil {
			cfg.Nproc, cfg.Declines = 1, cmp.Or(cfg.Declines, usagef("%v", err)) // of this node: others may have GPUs
		}
		cfg.CPUsPerTask = cpusPerTask(e) / cfg.Nproc
		cfg.MinCount = min(cmp.Or(o.nnodes.min, cfg.MinCount), cfg.Count)
	}
	return nil
}

// misplaced has the tasks that know that rank 0 is not on the first node say so to the others: by PMI-2 rank 0 does, and otherwise the first
// task of the first node, where the others look for agent 0. The other one's number need only be another.
func misplaced(client *pmi2.Client, alloc *slurm.Allocation, cfg *launch.AgentConfig) {
	if alloc == nil || alloc.CheckLayout() == nil {
		return
	}
	cfg.Declines = usagef("%v", alloc.CheckLayout())
	switch {
	case client != nil:
		cfg.Index = alloc.ProcID
	case alloc.NodeRank == 0:
		cfg.Index = 0
	default:
		cfg.Index = 1
	}
}

// agreesWith holds what flags say of the nodes against what Slurm says. A run that went on with either would surprise somebody.
func (o *runOptions) agreesWith(alloc *slurm.Allocation) error {
	nodes := len(alloc.Nodes)
	switch {
	case o.nnodes.max > 0 && (nodes < o.nnodes.min || nodes > o.nnodes.max):
		return &usageError{
			message: fmt.Sprintf("%s says %s, and this step has %s", o.how("nnodes"), o.nnodes, plural(nodes, "node")),
			hint:    "leave it out, and Slurm says it",
		}
	case o.has("master-addr") && nodes > 1 && alloc.Addresses == nil && isLoopbackName(o.masterAddr):
		return &usageError{
			message: fmt.Sprintf("%s is %s, and this step has %d nodes: each would look for rank 0 on itself", o.how("master-addr"), o.masterAddr, nodes),
			hint:    "leave it out, and Slurm says it",
		}
	}
	return nil
}

// agreesOnRank is agreesWith for what differs from node to node: some agents may agree, and then must hear of one that does not.
func (o *runOptions) agreesOnRank(alloc *slurm.Allocation) error {
	if !o.has("node-rank") || o.nodeRank == max(0, alloc.NodeRank) {
		return nil
	}
	return &usageError{
		message: fmt.Sprintf("%s is %d, and to Slurm this is node %d (%s)", o.how("node-rank"), o.nodeRank, alloc.NodeRank, alloc.NodeName()),
		hint: "leave it out (a $SLURM_NODEID or $SLURM_PROCID on srun's line is the batch script's own: the shell puts it in before " +
			"srun starts)",
	}
}

// agreesOnMaster is the same for --master-addr $(hostname), on whose node it agrees.
func (o *runOptions) agreesOnMaster(alloc *slurm.Allocation) error {
	at := slices.Index(alloc.Nodes, o.masterAddr)
	if !o.has("master-addr") || at <= 0 {
		return nil
	}
	return &usageError{
		message: fmt.Sprintf("%s is %s, node %d of the step, and rank 0 runs on %s", o.how("master-addr"), o.masterAddr, at, alloc.Nodes[0]),
		hint:    "leave it out, and Slurm says it",
	}
}

// agreesWithTasks is for srun tasks that are the ranks: --nproc-per-node may only say what srun did, on every node, so that all tasks
// find the same.
func (o *runOptions) agreesWithTasks(alloc *slurm.Allocation) error {
	differs := func(tasks int) bool { return o.nproc != strconv.Itoa(tasks) }
	at := slices.IndexFunc(alloc.TasksPerNode, differs)
	if o.nproc == "" || o.nproc == "1" || at < 0 {
		return nil
	}
	if differs(alloc.TasksPerNode[alloc.NodeRank]) {
		at = alloc.NodeRank
	}
	nodes := len(alloc.Nodes)
	return &usageError{
		message: fmt.Sprintf("srun starts a task per rank here (%d tasks, %d of them on %s), and %s asks for %s in each",
			alloc.Tasks, alloc.TasksPerNode[at], alloc.Nodes[at], o.how("nproc-per-node"), o.nproc),
		hint: fmt.Sprintf("leave it out, or start one task a node: srun -N%d -n%d --ntasks-per-node=1 (without -n srun takes the job's number of tasks)", nodes, nodes),
	}
}

// cpusPerTask is what the job asked for each of srun's tasks; 0: nothing.
func cpusPerTask(e *env) int {
	n, err := strconv.Atoi(e.get("SLURM_CPUS_PER_TASK"))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// taskPlace is the place of a task that is itself a rank.
func taskPlace(alloc *slurm.Allocation) launch.Place {
	r := alloc.Rank()
	return launch.Place{
		Rank: r.Rank, LocalRank: r.LocalRank, WorldSize: r.WorldSize, LocalWorldSize: r.LocalWorldSize,
		NodeRank: r.NodeRank, Nodes: r.Nodes,
	}
}
