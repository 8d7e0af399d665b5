package slurm

import (
	"fmt"
	"slices"
)

// Allocation is what Slurm's environment variables tell one task about its step and its job.
//
// In a step (under srun) Nodes, TasksPerNode and Tasks are the step's, which may be fewer than the
// job's, and NodeRank, ProcID and LocalID say which of its tasks this process is. Outside a step (in
// a batch script, under salloc) they are the job's, and only a plan: nothing has been started yet.
//
// It is plain data: it may be copied and read by several goroutines.
type Allocation struct {
	Cluster     string // SLURM_CLUSTER_NAME; empty where Slurm does not say
	JobID       string // decimal; a requeued job keeps it
	StepID      string // decimal; empty outside a step
	Restarts    int    // how often the job was requeued before: 0 in its first run
	ArrayJobID  string // of the whole array; empty outside an array
	ArrayTaskID string

	Nodes        []string // names, each once, in the order of SLURM_NODEID, which is not always sorted
	TasksPerNode []int    // by index into Nodes; nil outside a step unless they make Tasks
	Tasks        int      // in all; 0 outside a step where Slurm does not say
	NodeRank     int      // index of this node in Nodes; -1 outside the allocation (salloc's shell)
	ProcID       int      // rank of this task, 0 to Tasks-1
	LocalID      int      // rank among this node's tasks
	CPUsOnNode   int      // CPUs given to the step on this node; 0 where Slurm does not say

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
