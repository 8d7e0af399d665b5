package slurm

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Allocation holds what Slurm's environment variables say about a task, its step and its job.
//
// In a step (under srun) Nodes, TasksPerNode and Tasks are the step's, which may be fewer than the
// job's, and NodeRank, ProcID and LocalID say which of its tasks this process is. Outside a step (in
// a batch script, under salloc) they are the job's, and only a plan: nothing has been started yet.
//
// It is plain data: it may be copied and read by several goroutines.
type Allocation struct {
	Cluster  string // SLURM_CLUSTER_NAME; empty if Slurm does not set it
	JobID    string // decimal; a requeued job keeps it
	StepID   string // decimal; empty outside a step
	Restarts int    // how often the job was requeued before: 0 in its first run

	Nodes        []string // names, each once, in the order of SLURM_NODEID, which is not always sorted
	TasksPerNode []int    // by index into Nodes; outside a step nil unless their sum is Tasks
	Tasks        int      // in all; 0 outside a step if Slurm does not say
	NodeRank     int      // index of this node in Nodes; -1 outside the allocation (salloc's shell)
	ProcID       int      // rank of this task, 0 to Tasks-1
	LocalID      int      // rank among this node's tasks

	Addresses []string // by index into Nodes, in simulate only; nil: the names are the addresses
}

// InStep reports whether srun started this process as a task, alone or with others.
func (a *Allocation) InStep() bool { return a.StepID != "" }

// TaskMode reports whether srun started one task for each rank. It did if some node of the step
// has more than one task. Otherwise each task may be the agent of its node.
func (a *Allocation) TaskMode() bool {
	return a.InStep() && slices.Max(a.TasksPerNode) > 1
}

// NodeName returns Slurm's name for this node, which need not be its host name. It is empty
// if this process does not run on a node of the allocation.
func (a *Allocation) NodeName() string {
	if a.NodeRank < 0 {
		return ""
	}
	return a.Nodes[a.NodeRank]
}

// Address returns the address by which to reach Nodes[node]: its name, or in simulate its pretend address.
func (a *Allocation) Address(node int) string {
	if a.Addresses != nil {
		return a.Addresses[node]
	}
	return a.Nodes[node]
}

// Key identifies this run of this step among all others, "cluster/job.step.restart", for seeding
// ports and secrets. The restart count is part of it because a requeued job keeps its id and counts its steps from 0
// again, while tasks of its last run may still be alive on a node that lost contact.
func (a *Allocation) Key() string {
	return fmt.Sprintf("%s/%s.%s.%d", a.Cluster, a.JobID, a.StepID, a.Restarts)
}

// Rank is the place of one rank in its world, in torchrun's terms.
type Rank struct {
	Rank, WorldSize           int // RANK, WORLD_SIZE
	LocalRank, LocalWorldSize int // LOCAL_RANK, LOCAL_WORLD_SIZE: among the ranks of this node
	NodeRank, Nodes           int // GROUP_RANK, GROUP_WORLD_SIZE
}

// Rank returns the place of this task in a world in which every task is one rank. Slurm numbers the tasks, so
// uneven, cyclic and arbitrary layouts are right if rank 0 is on the first node (see CheckLayout: otherwise the
// other tasks cannot know the master address). Outside a step this process is a world of one, whatever the job
// asked for.
func (a *Allocation) Rank() Rank {
	if !a.InStep() {
		return Rank{WorldSize: 1, LocalWorldSize: 1, Nodes: 1}
	}
	return Rank{
		Rank: a.ProcID, WorldSize: a.Tasks,
		LocalRank: a.LocalID, LocalWorldSize: a.TasksPerNode[a.NodeRank],
		NodeRank: a.NodeRank, Nodes: len(a.Nodes),
	}
}

// CheckLayout returns an error if this task can tell that rank 0 is not on the step's first node, where the other tasks look for it. The
// task that is rank 0 can, and so can the first task of the first node, as Slurm numbers the tasks of a node in the order of their ranks.
// The other tasks cannot: no variable says where rank 0 is. Only "-m arbitrary" produces such a layout.
func (a *Allocation) CheckLayout() error {
	switch {
	case !a.InStep():
		return nil
	case a.ProcID == 0 && a.NodeRank != 0:
		return fmt.Errorf("SLURM_PROCID is 0 on %s, but the other tasks look for rank 0 on %s, the step's first node: begin "+
			"the list of hosts with %s",
			a.NodeName(), a.Nodes[0], a.Nodes[0])
	case a.NodeRank == 0 && a.LocalID == 0 && a.ProcID != 0:
		return fmt.Errorf("the first task on %s, the step's first node, has SLURM_PROCID %d, but the others look for rank 0 there: begin "+
			"the list of hosts with %s",
			a.Nodes[0], a.ProcID, a.Nodes[0])
	}
	return nil
}

// SimAddresses names the variable in which simulate gives the pretend nodes' addresses: one IP
// address a node, in the order of SLURM_NODEID, separated by commas. Slurm does not set it.
const SimAddresses = "DDPBATCH_SIM_ADDRS"

// maxNormalStep is the largest id of a step that srun makes (SLURM_MAX_NORMAL_STEP_ID in slurm.h).
// Larger ids are those of the batch script, the external step and salloc's interactive shell (4294967290), in
// which SLURM_STEP_* describe one task on one node, whatever the job has.
const maxNormalStep = 0xfffffff0

// FromEnviron reads the allocation from Slurm's variables, which lookup returns (os.LookupEnv, say).
// It runs no command, so it works in a container too.
//
// In a step it reads the step's own variables first and the job's second. Missing or contradictory values are an error
// that names the variables, because a wrong world hangs or trains wrongly. It does not read
// SLURM_NTASKS_PER_NODE, which only repeats what sbatch was asked for. Outside any
// job the error matches [ErrNotInSlurm]. An empty variable counts as unset, and so does "(null)".
func FromEnviron(lookup func(string) (string, bool)) (*Allocation, error) {
	a, err := readAllocation(environ(lookup))
	if err != nil {
		return nil, fmt.Errorf("read Slurm's environment: %w", err)
	}
	return a, nil
}

func readAllocation(env environ) (*Allocation, error) {
	a := new(Allocation)
	if err := a.readJob(env); err != nil {
		return nil, err
	}
	var err error
	if a.InStep() {
		err = a.readStep(env)
	} else {
		err = a.readPlan(env)
	}
	if err != nil {
		return nil, err
	}
	if a.Addresses, err = readAddresses(env, len(a.Nodes)); err != nil {
		return nil, err
	}
	return a, nil
}

// readJob reads what identifies this run of this step.
func (a *Allocation) readJob(env environ) (err error) {
	if a.JobID, err = env.id("SLURM_JOB_ID"); err != nil {
		return err
	}
	if a.JobID == "" {
		return fmt.Errorf("SLURM_JOB_ID is not set: %w", ErrNotInSlurm)
	}
	if a.StepID, err = env.id("SLURM_STEP_ID"); err != nil {
		return err
	}
	if n, err := strconv.ParseUint(a.StepID, 10, 32); err == nil && n > maxNormalStep {
		a.StepID = ""
	}
	if a.Restarts, err = env.numberOr(0, "SLURM_RESTART_COUNT"); err != nil {
		return err
	}
	cluster, _ := env.first("SLURM_CLUSTER_NAME")
	a.Cluster = cluster.value
	return nil
}

// readPlan reads the job outside a step. There the number of tasks may be missing (SLURM_NTASKS
// came and went in 23.02), and the counts may be wrong (22.05 has SLURM_TASKS_PER_NODE=2(x4) in the
// batch script of 7 tasks) or count CPUs (if the job asked for no tasks). So counts that
// SLURM_NTASKS does not confirm are left out.
func (a *Allocation) readPlan(env environ) error {
	nodelist, err := a.readNodes(env, "SLURM_JOB_NODELIST", "SLURM_NODELIST")
	if err != nil {
		return err
	}
	counts, err := readCounts(env, "SLURM_TASKS_PER_NODE")
	if err != nil && !errors.Is(err, errNotSet) {
		return err
	}
	if a.Tasks, err = env.numberOr(0, "SLURM_NTASKS", "SLURM_NPROCS"); err != nil {
		return err
	}
	if len(counts.list) == len(a.Nodes) && counts.total == a.Tasks {
		a.TasksPerNode = counts.list
	}
	if a.NodeRank, err = env.numberOr(-1, "SLURM_NODEID"); err != nil {
		return err
	}
	if a.NodeRank >= len(a.Nodes) {
		return fmt.Errorf("SLURM_NODEID is %d, but %s names only %d nodes", a.NodeRank, nodelist, len(a.Nodes))
	}
	return nil
}

// readNodes sets Nodes from the first of the variables that is set, and returns that variable.
func (a *Allocation) readNodes(env environ, names ...string) (variable, error) {
	nodelist, err := env.need(names...)
	if err != nil {
		return variable{}, err
	}
	a.Nodes, err = ExpandHostlist(nodelist.value, MaxNodes)
	if err != nil {
		return variable{}, fmt.Errorf("%s: %w", nodelist.name, err)
	}
	if len(a.Nodes) == 0 {
		return variable{}, fmt.Errorf("%s does not name any node", nodelist)
	}
	seen := make(map[string]bool, len(a.Nodes))
	for _, name := range a.Nodes {
		if seen[name] {
			return variable{}, fmt.Errorf("%s names node %s twice", nodelist, name)
		}
		seen[name] = true
	}
	return nodelist, nil
}

func readAddresses(env environ, nodes int) ([]string, error) {
	v, set := env.first(SimAddresses)
	if !set {
		return nil, nil
	}
	addresses := strings.Split(v.value, ",")
	if len(addresses) != nodes {
		return nil, fmt.Errorf("%s gives %d addresses for %d nodes", v, len(addresses), nodes)
	}
	for _, address := range addresses {
		if _, err := netip.ParseAddr(address); err != nil {
			return nil, fmt.Errorf("%s: %s is not an IP address", v.name, clip(address))
		}
	}
	return addresses, nil
}
