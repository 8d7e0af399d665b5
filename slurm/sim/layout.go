package sim

import "slices"

// Layout is how srun deals out the ranks of a step (srun(1), --distribution).
type Layout string

const (
	Block  Layout = "block"  // a node's ranks follow on each other
	Cyclic Layout = "cyclic" // one to each node in turn, as long as it has room
)

// Place is the place of one task in its step.
type Place struct {
	Proc  int   // SLURM_PROCID
	Local int   // SLURM_LOCALID
	Node  int   // SLURM_NODEID: the node's index in the step
	Procs []int // SLURM_GTIDS: the ranks of its node
}

// layout is what Slurm chooses, for a component or for the step, where nobody asks: cyclic where no node has two tasks.
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

// tasks is how many tasks each node of the step has.
func (a Allocation) tasks() []int {
	if a.Tasks == nil {
		return slices.Repeat([]int{1}, a.stepNodes())
	}
	return a.Tasks
}

// Places are those of all tasks of the step, in the order of their ranks: those of a heterogeneous job's components follow on each
// other.
func (a Allocation) Places() []Place {
	var nodes []int // of each rank
	for _, span := range a.spans() {
		for _, node := range deal(a.tasks()[span[0]:span[1]], a.layout(span)) {
			nodes = append(nodes, span[0]+node)
		}
	}
	procs := make([][]int, a.stepNodes())
	places := make([]Place, len(nodes))
	for proc, node := range nodes {
		places[proc] = Place{Proc: proc, Local: len(procs[node]), Node: node}
		procs[node] = append(procs[node], proc)
	}
	for i, p := range places {
		places[i].Procs = procs[p.Node]
	}
	return places
}

// deal deals out tasks to the nodes that have room for so many: the node of each.
func deal(tasks []int, layout Layout) (nodes []int) {
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
