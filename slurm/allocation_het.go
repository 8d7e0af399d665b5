package slurm

import (
	"fmt"
	"strconv"
)

// MaxHetSize is the most components that Slurm gives a heterogeneous job (MAX_HET_JOB_COMPS in slurm.h).
const MaxHetSize = 128

// orderByComponent puts the nodes of a heterogeneous job's step, and the counts of their tasks, into the order of SLURM_NODEID. That
// goes component by component, while the step's lists have all of its nodes sorted by name (seen in Slurm 22.05): the two differ where
// a later component has a node of an earlier name. Every task knows the nodes of each component.
func (a *Allocation) orderByComponent(env environ) error {
	size, err := env.numberOr(0, "SLURM_HET_SIZE")
	if err != nil || size < 2 {
		return err
	}
	if size > MaxHetSize {
		return fmt.Errorf("SLURM_HET_SIZE is %d, and Slurm gives a job no more than %d components", size, MaxHetSize)
	}
	left := make(map[string]int, len(a.Nodes)) // indices into Nodes
	for i, name := range a.Nodes {
		left[name] = i
	}
	var order []int
	for component := range size {
		list, set := env.first("SLURM_JOB_NODELIST_HET_GROUP_" + strconv.Itoa(component))
		if !set {
			return nil // nothing tells; NODEID is held against SLURMD_NODENAME all the same
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
