package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"ddpbatch/slurm"
)

// MaxNodes is the largest number of pretend nodes: one for each address of 127.0.0.0/24 but the
// first and the last.
const MaxNodes = 254

// maxTasks bounds the tasks of a step: each is a process on this machine.
const maxTasks = 1 << 14

// Node is a pretend node.
type Node struct {
	Name    string
	Address string // an IP address that the other pretend nodes reach
}

// PretendNode returns node i, from 0, with its default name and address: node1 at 127.0.0.1. It panics if i is negative or not below
// MaxNodes.
func PretendNode(i int) Node {
	if i < 0 || i >= MaxNodes {
		panic("sim: node out of range")
	}
	return Node{Name: "node" + strconv.Itoa(i+1), Address: "127.0.0." + strconv.Itoa(i+1)}
}

// PretendNodes returns the first n pretend nodes, at most MaxNodes.
func PretendNodes(n int) []Node {
	nodes := make([]Node, max(0, min(n, MaxNodes)))
	for i := range nodes {
		nodes[i] = PretendNode(i)
	}
	return nodes
}

// NamedNodes returns pretend nodes with the names of a host list, in its order.
func NamedNodes(hostlist string) ([]Node, error) {
	names, err := slurm.ExpandHostlist(hostlist, MaxNodes)
	if err != nil {
		return nil, err
	}
	nodes := PretendNodes(len(names))
	for i, name := range names {
		nodes[i].Name = name
	}
	return nodes, nil
}

// Release is a release of Slurm whose behavior is imitated. The zero value means Slurm2205.
type Release string

// The releases whose behavior was recorded.
const (
	Slurm2205 Release = "22.05"
	Slurm2511 Release = "25.11"
)

// Releases lists all releases.
var Releases = []Release{Slurm2205, Slurm2511}

// Allocation is a pretend job and its one step. It is plain data; its methods may be called by several
// goroutines at once.
type Allocation struct {
	Release  Release
	JobID    int    // from 1
	JobName  string // may be empty
	Nodes    []Node // the job's, 1 to MaxNodes, in Slurm's order
	Nodelist string // the nodes as a host list as the variables spell it; "": as FoldHostlist writes it
	Restarts int    // how often the pretend job was requeued before
	CPUs     []int  // the job's CPUs on each node, or one number for all nodes; nil: unknown
	WorkDir  string // what sbatch's working directory would be
	Array    *Element
	EndTime  time.Time // when the job ends at the latest; zero: not set, as by Slurm before 23.02

	// The step runs on the nodes with the indices Step, in the job's order; nil: on all nodes. Tasks is the number of tasks on
	// each of them; nil: one each.
	Step   []int
	Tasks  []int
	Layout Layout

	TasksPerNode int // sbatch's --ntasks-per-node; 0: not given
	CPUsPerTask  int // sbatch's --cpus-per-task; 0: not given

	// Components are the components of a heterogeneous job. They have consecutive nodes of the job, and their own values instead of the
	// two numbers above. The step is `srun --het-group=0,1,...` with all of them: one world. nil: the job is not heterogeneous.
	Components []Component
}

// Validate reports what is wrong with the nodes, the step, the tasks and the components. The other methods need a valid allocation, of a
// release in Releases, with a job id from 1.
func (a Allocation) Validate() error {
	switch {
	case len(a.Nodes) < 1 || len(a.Nodes) > MaxNodes:
		return fmt.Errorf("simulate %d nodes: the number must be 1 to %d", len(a.Nodes), MaxNodes)
	case len(a.CPUs) > 1 && len(a.CPUs) != len(a.Nodes):
		return fmt.Errorf("simulate the CPUs of %d nodes: the job has %d", len(a.CPUs), len(a.Nodes))
	}
	return errors.Join(a.validateNodes(), a.validateStep(), a.validateComponents())
}

func (a Allocation) validateNodes() error {
	seen := map[string]bool{}
	for _, n := range a.Nodes {
		if n.Name == "" || seen[n.Name] || seen[n.Address] {
			return fmt.Errorf("simulate node %q at %s: names and addresses must differ", n.Name, n.Address)
		}
		seen[n.Name], seen[n.Address] = true, true
	}
	return nil
}

func (a Allocation) validateStep() error {
	if !slices.IsSorted(a.Step) || len(slices.Compact(slices.Clone(a.Step))) != len(a.Step) {
		return fmt.Errorf("simulate a step on nodes %v: name each once, in the job's order", a.Step)
	}
	if n := len(a.Step); n > 0 && (a.Step[0] < 0 || a.Step[n-1] >= len(a.Nodes)) {
		return fmt.Errorf("simulate a step on nodes %v: the job has %d nodes, counted from 0", a.Step, len(a.Nodes))
	}
	if a.Tasks != nil && len(a.Tasks) != a.stepNodes() {
		return fmt.Errorf("simulate the tasks of %d nodes: the step has %d", len(a.Tasks), a.stepNodes())
	}
	total := 0
	for _, n := range a.Tasks {
		if n < 1 || n > maxTasks {
			return fmt.Errorf("simulate %d tasks on a node: the number must be 1 to %d", n, maxTasks)
		}
		total += n
	}
	if total > maxTasks {
		return fmt.Errorf("simulate %d tasks: the number must be at most %d", total, maxTasks)
	}
	return nil
}

// stepNodes returns how many nodes the step has.
func (a Allocation) stepNodes() int {
	if a.Step == nil {
		return len(a.Nodes)
	}
	return len(a.Step)
}

// StepNode returns the index, among the job's nodes, of node i of the step.
func (a Allocation) StepNode(i int) int {
	if a.Step == nil {
		return i
	}
	return a.Step[i]
}

// Layout is how srun distributes the ranks of a step over the nodes (srun(1), --distribution).
type Layout string

const (
	Block  Layout = "block"  // a node's ranks are consecutive
	Cyclic Layout = "cyclic" // one rank to each node in turn, as long as it has room
)

// Task identifies one task of the step, as Slurm does.
type Task struct {
	Proc  int   // SLURM_PROCID
	Local int   // SLURM_LOCALID
	Node  int   // SLURM_NODEID: the node's index in the step
	Procs []int // SLURM_GTIDS: the ranks of its node
}

// layout returns the layout of a component or of the step: Layout, or else Slurm's default, which is cyclic if no node has two tasks.
func (a Allocation) layout(span [2]int) Layout {
	tasks := a.tasks()[span[0]:span[1]]
	switch {
	case a.Layout != "":
		return a.Layout
	case len(tasks) == 0 || slices.Max(tasks) == 1:
		return Cyclic
	}
	return Block
}

// tasks returns how many tasks each node of the step has.
func (a Allocation) tasks() []int {
	if a.Tasks == nil {
		return slices.Repeat([]int{1}, a.stepNodes())
	}
	return a.Tasks
}

// StepTasks returns all tasks of the step, in the order of their ranks. In a heterogeneous job the ranks of a component follow those of the
// component before it.
func (a Allocation) StepTasks() []Task {
	var nodes []int // of each rank
	for _, span := range a.spans() {
		for _, node := range distribute(a.tasks()[span[0]:span[1]], a.layout(span)) {
			nodes = append(nodes, span[0]+node)
		}
	}
	procs := make([][]int, a.stepNodes())
	all := make([]Task, len(nodes))
	for proc, node := range nodes {
		all[proc] = Task{Proc: proc, Local: len(procs[node]), Node: node}
		procs[node] = append(procs[node], proc)
	}
	for i, t := range all {
		all[i].Procs = procs[t.Node]
	}
	return all
}

// distribute distributes ranks over nodes with the given numbers of tasks. It returns the node of each rank.
func distribute(tasks []int, layout Layout) (nodes []int) {
	if layout != Cyclic {
		for node, n := range tasks {
			nodes = append(nodes, slices.Repeat([]int{node}, n)...)
		}
		return nodes
	}
	for round, dealt := 0, true; dealt; round++ {
		dealt = false
		for node, n := range tasks {
			if round < n {
				nodes, dealt = append(nodes, node), true
			}
		}
	}
	return nodes
}
