package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
	"ddpbatch/slurm/pmi2"
)

func (a *Agent) bySlurm(alloc *slurm.Allocation, cfg *launch.AgentConfig) (err error) {
	if !alloc.InStep() && (len(alloc.Nodes) > 1 || alloc.Tasks > 1) {
		return &usage.Error{
			Message: fmt.Sprintf("this is a batch script or a job's shell, but the job has %s and %s",
				text.Plural(len(alloc.Nodes), "node"), text.Plural(alloc.Tasks, "task")),
			Hint: "start it with srun, or pass --standalone to use only this node",
		}
	}
	if err := a.agreesWith(alloc); err != nil {
		return err
	}
	cfg.Reject = cmp.Or(a.agreesOnRank(alloc), a.agreesOnMaster(alloc))
	cfg.OneMachine = alloc.Addresses != nil
	cfg.JobID, cfg.Restarts, cfg.RunID = a.JobID, alloc.Restarts, alloc.Key()
	cfg.MasterAddr, cfg.Ports = alloc.Address(0), cfg.Ranges.Ports(alloc.Key(), rendezvousPorts)
	if a.Has("master-port") {
		cfg.MasterPort = a.MasterPort
		cfg.Ports = cfg.Ranges.Ports(fmt.Sprint(alloc.Key(), "/", a.MasterPort), rendezvousPorts) // other ports, in case those are taken
	}
	if name := alloc.NodeName(); name != "" {
		cfg.Host = name
	}
	if alloc.TaskMode() {
		if err := a.agreesWithTasks(alloc); err != nil {
			return err
		}
		cfg.Index, cfg.Count, cfg.AgentsPerNode = alloc.ProcID, alloc.Tasks, make(map[string]int)
		for node, name := range alloc.Nodes {
			cfg.AgentsPerNode[name] = alloc.TasksPerNode[node]
		}
		cfg.Local = []launch.RankNumbers{TaskRanks(alloc)}
		cfg.CPUsPerTask = a.cpusPerTask()
		cfg.MinCount = 0 // the tasks are the ranks, and Slurm has numbered them
	} else {
		cfg.Index, cfg.Count, cfg.Hosts = max(0, alloc.NodeRank), len(alloc.Nodes), alloc.Nodes
		if cfg.Nproc, err = a.PerNode.On(cfg.Index, a.Lookup); err != nil {
			cfg.Nproc, cfg.Reject = 1, cmp.Or(cfg.Reject, usage.Errorf("%v", err)) // an error of this node only: others may have GPUs
		}
		cfg.CPUsPerTask = a.cpusPerTask() / cfg.Nproc
		cfg.MinCount = min(cmp.Or(a.Nodes.Min, cfg.MinCount), cfg.Count)
	}
	return nil
}

// Misplaced sets cfg.Reject if rank 0 is not on the first node, and picks the agent that tells the others: with PMI-2 rank 0, and otherwise
// the first task of the first node, where the others look for agent 0. Any other index serves for the remaining agents.
func Misplaced(client *pmi2.Client, alloc *slurm.Allocation, cfg *launch.AgentConfig) {
	if alloc == nil || alloc.CheckLayout() == nil {
		return
	}
	cfg.Reject = usage.Errorf("%v", alloc.CheckLayout())
	switch {
	case client != nil:
		cfg.Index = alloc.ProcID
	case alloc.NodeRank == 0:
		cfg.Index = 0
	default:
		cfg.Index = 1
	}
}

// The agents' offers must fit into a message of PMI-2: a negative constant does not convert to uint.
const _ = uint(pmi2.MaxText - launch.MaxOffer)

// Exchange lets agent 0 tell the others its address by PMI-2. That works if each task of the step is an agent and all agents must join.
// Without Slurm (alloc is nil) the agents are not the tasks of the step.
func Exchange(client *pmi2.Client, alloc *slurm.Allocation, cfg *launch.AgentConfig) {
	if client != nil && alloc != nil && cfg.Count > 1 && (cfg.MinCount == 0 || cfg.MinCount == cfg.Count) &&
		client.Size() == cfg.Count && client.Rank() == alloc.ProcID && (client.Rank() == 0) == (cfg.Index == 0) {
		cfg.Exchange = client.FromZero
	}
}

// agreesWith checks flags about nodes against Slurm. If they disagree, either choice would surprise somebody.
func (a *Agent) agreesWith(alloc *slurm.Allocation) error {
	nodes := len(alloc.Nodes)
	switch {
	case a.Nodes.Max > 0 && (nodes < a.Nodes.Min || nodes > a.Nodes.Max):
		return &usage.Error{
			Message: fmt.Sprintf("%s is %s, but this step has %s", a.How("nnodes"), a.Nodes, text.Plural(nodes, "node")),
			Hint:    "leave it out: Slurm provides it",
		}
	case a.Has("master-addr") && nodes > 1 && alloc.Addresses == nil && isLoopbackName(a.MasterAddr):
		return &usage.Error{
			Message: fmt.Sprintf("%s is %s, but this step has %d nodes: each would look for rank 0 on itself",
				a.How("master-addr"), a.MasterAddr, nodes),
			Hint: "leave it out: Slurm provides it",
		}
	}
	return nil
}

// agreesOnRank checks --node-rank, as agreesWith does. It may be right on some nodes and wrong on others, which must then be told.
func (a *Agent) agreesOnRank(alloc *slurm.Allocation) error {
	if !a.Has("node-rank") || a.NodeRank == max(0, alloc.NodeRank) {
		return nil
	}
	return &usage.Error{
		Message: fmt.Sprintf("%s is %d, but for Slurm this is node %d (%s)", a.How("node-rank"), a.NodeRank,
			alloc.NodeRank, alloc.NodeName()),
		Hint: "leave it out (the batch script's shell expands a $SLURM_NODEID or $SLURM_PROCID on srun's line before " +
			"srun starts)",
	}
}

// agreesOnMaster checks --master-addr, as agreesWith does. --master-addr $(hostname) is right on the first node and wrong on all others.
func (a *Agent) agreesOnMaster(alloc *slurm.Allocation) error {
	at := slices.Index(alloc.Nodes, a.MasterAddr)
	if !a.Has("master-addr") || at <= 0 {
		return nil
	}
	return &usage.Error{
		Message: fmt.Sprintf("%s is %s, node %d of the step, but rank 0 runs on %s", a.How("master-addr"),
			a.MasterAddr, at, alloc.Nodes[0]),
		Hint: "leave it out: Slurm provides it",
	}
}

// agreesWithTasks checks --nproc-per-node if the tasks of srun are the ranks: it must be the number of tasks on every node. It checks all
// nodes, so that all tasks come to the same result.
func (a *Agent) agreesWithTasks(alloc *slurm.Allocation) error {
	differs := func(tasks int) bool { return a.Nproc != strconv.Itoa(tasks) }
	at := slices.IndexFunc(alloc.TasksPerNode, differs)
	if a.Nproc == "" || a.Nproc == "1" || at < 0 {
		return nil
	}
	if differs(alloc.TasksPerNode[alloc.NodeRank]) {
		at = alloc.NodeRank
	}
	nodes := len(alloc.Nodes)
	return &usage.Error{
		Message: fmt.Sprintf("srun starts one task per rank here (%d tasks, %d of them on %s), but %s asks for %s workers in each",
			alloc.Tasks, alloc.TasksPerNode[at], alloc.Nodes[at], a.How("nproc-per-node"), a.Nproc),
		Hint: fmt.Sprintf("leave it out, or start one task per node: srun -N%d -n%d --ntasks-per-node=1 (without -n srun takes the job's "+
			"number of tasks)", nodes, nodes),
	}
}

// cpusPerTask returns the number of CPUs that the job requested for each task, or 0 if it requested none.
func (a *Agent) cpusPerTask() int {
	text, _ := a.Lookup("SLURM_CPUS_PER_TASK")
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// TaskRanks returns the rank numbers of a task that is itself a rank.
func TaskRanks(alloc *slurm.Allocation) launch.RankNumbers {
	r := alloc.Rank()
	return launch.RankNumbers{
		Rank: r.Rank, LocalRank: r.LocalRank, WorldSize: r.WorldSize, LocalWorldSize: r.LocalWorldSize,
		NodeRank: r.NodeRank, Nodes: r.Nodes,
	}
}
