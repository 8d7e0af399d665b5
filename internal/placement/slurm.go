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
			Message: fmt.Sprintf("this is a batch script or a job's shell, and the job has %s and %s",
				text.Plural(len(alloc.Nodes), "node"), text.Plural(alloc.Tasks, "task")),
			Hint: "start it with srun, or pass --standalone for this node alone",
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
		cfg.Ports = cfg.Ranges.Ports(fmt.Sprint(alloc.Key(), "/", a.MasterPort), rendezvousPorts) // others, where somebody holds those
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
			cfg.Nproc, cfg.Reject = 1, cmp.Or(cfg.Reject, usage.Errorf("%v", err)) // of this node: others may have GPUs
		}
		cfg.CPUsPerTask = a.cpusPerTask() / cfg.Nproc
		cfg.MinCount = min(cmp.Or(a.Nodes.Min, cfg.MinCount), cfg.Count)
	}
	return nil
}

// Misplaced has the tasks that know that rank 0 is not on the first node say so to the others: by PMI-2 rank 0 does, and otherwise the
// first task of the first node, where the others look for agent 0. The other one's number need only be another.
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

// What agents tell each other must fit: a negative number is no uint.
const _ = uint(pmi2.MaxText - launch.MaxOffer)

// Exchange lets agent 0 tell the others where it is, if each task of the step is an agent and all of them must come. By hand (no alloc)
// there are other agents than the step's tasks.
func Exchange(client *pmi2.Client, alloc *slurm.Allocation, cfg *launch.AgentConfig) {
	if client != nil && alloc != nil && cfg.Count > 1 && (cfg.MinCount == 0 || cfg.MinCount == cfg.Count) &&
		client.Size() == cfg.Count && client.Rank() == alloc.ProcID && (client.Rank() == 0) == (cfg.Index == 0) {
		cfg.Exchange = client.FromZero
	}
}

// agreesWith holds what flags say of the nodes against what Slurm says. A run that went on with either would surprise somebody.
func (a *Agent) agreesWith(alloc *slurm.Allocation) error {
	nodes := len(alloc.Nodes)
	switch {
	case a.Nodes.Max > 0 && (nodes < a.Nodes.Min || nodes > a.Nodes.Max):
		return &usage.Error{
			Message: fmt.Sprintf("%s says %s, and this step has %s", a.How("nnodes"), a.Nodes, text.Plural(nodes, "node")),
			Hint:    "leave it out, and Slurm says it",
		}
	case a.Has("master-addr") && nodes > 1 && alloc.Addresses == nil && isLoopbackName(a.MasterAddr):
		return &usage.Error{
			Message: fmt.Sprintf("%s is %s, and this step has %d nodes: each would look for rank 0 on itself",
				a.How("master-addr"), a.MasterAddr, nodes),
			Hint: "leave it out, and Slurm says it",
		}
	}
	return nil
}

// agreesOnRank is agreesWith for what differs from node to node: some agents may agree, and then must hear of one that does not.
func (a *Agent) agreesOnRank(alloc *slurm.Allocation) error {
	if !a.Has("node-rank") || a.NodeRank == max(0, alloc.NodeRank) {
		return nil
	}
	return &usage.Error{
		Message: fmt.Sprintf("%s is %d, and to Slurm this is node %d (%s)", a.How("node-rank"), a.NodeRank,
			alloc.NodeRank, alloc.NodeName()),
		Hint: "leave it out (a $SLURM_NODEID or $SLURM_PROCID on srun's line is the batch script's own: the shell puts it in before " +
			"srun starts)",
	}
}

// agreesOnMaster is the same for --master-addr $(hostname), on whose node it agrees.
func (a *Agent) agreesOnMaster(alloc *slurm.Allocation) error {
	at := slices.Index(alloc.Nodes, a.MasterAddr)
	if !a.Has("master-addr") || at <= 0 {
		return nil
	}
	return &usage.Error{
		Message: fmt.Sprintf("%s is %s, node %d of the step, and rank 0 runs on %s", a.How("master-addr"),
			a.MasterAddr, at, alloc.Nodes[0]),
		Hint: "leave it out, and Slurm says it",
	}
}

// agreesWithTasks is for srun tasks that are the ranks: --nproc-per-node may only say what srun did, on every node, so that all tasks
// find the same.
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
		Message: fmt.Sprintf("srun starts a task per rank here (%d tasks, %d of them on %s), and %s asks for %s in each",
			alloc.Tasks, alloc.TasksPerNode[at], alloc.Nodes[at], a.How("nproc-per-node"), a.Nproc),
		Hint: fmt.Sprintf("leave it out, or start one task a node: srun -N%d -n%d --ntasks-per-node=1 (without -n srun takes the job's "+
			"number of tasks)", nodes, nodes),
	}
}

// cpusPerTask is what the job asked for each of srun's tasks; 0: nothing.
func (a *Agent) cpusPerTask() int {
	text, _ := a.Lookup("SLURM_CPUS_PER_TASK")
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// TaskRanks is what a rank is told of where it stands, of a task that is itself a rank.
func TaskRanks(alloc *slurm.Allocation) launch.RankNumbers {
	r := alloc.Rank()
	return launch.RankNumbers{
		Rank: r.Rank, LocalRank: r.LocalRank, WorldSize: r.WorldSize, LocalWorldSize: r.LocalWorldSize,
		NodeRank: r.NodeRank, Nodes: r.Nodes,
	}
}
