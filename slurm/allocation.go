package slurm

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Allocation is what Slurm's environment variables tell one task about its step and its job.
//
// In a step (under srun) Nodes, TasksPerNode and Tasks are the step's, which may be fewer than the
// job's, and NodeRank, ProcID and LocalID say which of its tasks this process is. Outside a step (in
// a batch script, under salloc) they are the job's, and only a plan: nothing has been started yet.
//
// It is plain data: it may be copied and read by several goroutines.
type Allocation struct {
	Cluster  string // SLURM_CLUSTER_NAME; empty where Slurm does not say
	JobID    string // decimal; a requeued job keeps it
	StepID   string // decimal; empty outside a step
	Restarts int    // how often the job was requeued before: 0 in its first run

	Nodes        []string // names, each once, in the order of SLURM_NODEID, which is not always sorted
	TasksPerNode []int    // by index into Nodes; nil outside a step unless they make Tasks
	Tasks        int      // in all; 0 outside a step where Slurm does not say
	NodeRank     int      // index of this node in Nodes; -1 outside the allocation (salloc's shell)
	ProcID       int      // rank of this task, 0 to Tasks-1
	LocalID      int      // rank among this node's tasks

	Addresses []string // by index into Nodes, in simulate only; nil: the names are the addresses
}

// InStep says whether srun started this process, alone or with others, as a task.
func (a *Allocation) InStep() bool { return a.StepID != "" }

// TaskMode says whether srun started one task for each rank: it did where some node of the step
// has more than one. Otherwise each task may be the agent of its node.
func (a *Allocation) TaskMode() bool {
	return a.InStep() && slices.Max(a.TasksPerNode) > 1
}

// NodeName is the name that Slurm has for this node, which need not be its host name; it is empty
// where this process does not run on a node of the allocation.
func (a *Allocation) NodeName() string {
	if a.NodeRank < 0 {
		return ""
	}
	return a.Nodes[a.NodeRank]
}

// Address is what to reach Nodes[node] by: its name, or in simulate its pretend address.
func (a *Allocation) Address(node int) string {
	if a.Addresses != nil {
		return a.Addresses[node]
	}
	return a.Nodes[node]
}

// Key tells this run of this step from every other one, "cluster/job.step.restart", for seeding
// ports and secrets. A requeued job keeps its id and counts its steps from 0 again, and the tasks of
// its last run may still be alive on a node that lost contact: hence the restart.
func (a *Allocation) Key() string {
	return fmt.Sprintf("%s/%s.%s.%d", a.Cluster, a.JobID, a.StepID, a.Restarts)
}

// Rank is the place of one rank in its world, in torchrun's terms.
type Rank struct {
	Rank, WorldSize           int // RANK, WORLD_SIZE
	LocalRank, LocalWorldSize int // LOCAL_RANK, LOCAL_WORLD_SIZE: among the ranks of this node
	NodeRank, Nodes           int // GROUP_RANK, GROUP_WORLD_SIZE
}

// Rank is the place of this task where every task is one rank. Slurm numbers the tasks itself, so
// that uneven, cyclic and arbitrary layouts are right, where rank 0 is on the first node (see
// CheckLayout: nothing would tell the master address). Outside a step this process is alone, whatever
// the job asked for: a world of one.
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

// CheckLayout tells that rank 0 is not on the step's first node, where the other tasks look for it, as far as this task can know: the task
// that is rank 0 does, and so does the first of the first node, as Slurm numbers the tasks of a node in the order of their ranks. Only
// "-m arbitrary" lays tasks out so, and no variable tells the others.
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

// SimAddresses names the variable in which simulate gives the pretend nodes' addresses: IP
// addresses, one a node in the order of SLURM_NODEID, with commas between. Slurm knows nothing of it.
const SimAddresses = "DDPBATCH_SIM_ADDRS"

// maxNormalStep is the largest id of a step that srun makes (SLURM_MAX_NORMAL_STEP_ID in slurm.h).
// Beyond are the batch script, the external step and salloc's interactive shell (4294967290), in
// which SLURM_STEP_* describe one task on one node, whatever the job has.
const maxNormalStep = 0xfffffff0

// FromEnviron reads the allocation from Slurm's variables, which lookup gives (os.LookupEnv, say).
// It runs no command, so that it works in a container too.
//
// In a step the step's own variables come first and the job's second; what neither says, or what
// contradicts itself, is an error that names the variables, because a wrong world hangs or trains
// wrongly. SLURM_NTASKS_PER_NODE is never read: it only repeats what sbatch was asked. Outside any
// job the error is [ErrNotInSlurm]. An empty variable counts as unset, and so does "(null)".
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

// readJob reads what tells this run of this step from others.
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

// readPlan reads the job outside a step. What Slurm says of tasks there may be missing (SLURM_NTASKS
// came and went in 23.02), and the counts may be wrong (22.05 has SLURM_TASKS_PER_NODE=2(x4) in the
// batch script of 7 tasks) or count CPUs (where no tasks were asked for), so that counts which
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

// readNodes sets Nodes from the first of the variables that is set, and returns it.
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
		return variable{}, fmt.Errorf("%s names no node", nodelist)
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
