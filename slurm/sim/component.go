package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/slurm"
)

// Component is one component of a heterogeneous job (sbatch's hetjob), and the options of sbatch for it.
type Component struct {
	Nodes        int // how many of the job's nodes it has, after those of the components before it
	TasksPerNode int // --ntasks-per-node; 0: not given
	CPUsPerTask  int // --cpus-per-task; 0: not given
}

// validateComponents reports what is wrong with the components. Slurm makes a plain job of a single component, and a job of several
// components cannot have a step on only some of its nodes.
func (a Allocation) validateComponents() error {
	if a.Components == nil {
		return nil
	}
	if n := len(a.Components); n < 2 || n > slurm.MaxHetSize {
		return fmt.Errorf("simulate a heterogeneous job of %d components: Slurm takes 2 to %d", n, slurm.MaxHetSize)
	}
	nodes := 0
	for _, c := range a.Components {
		nodes += c.Nodes
	}
	switch {
	case nodes != len(a.Nodes):
		return fmt.Errorf("simulate a heterogeneous job whose components have %d nodes: the job has %d", nodes, len(a.Nodes))
	case a.Step != nil:
		return errors.New("simulate a heterogeneous job's step on some of its nodes: it has the nodes of all components")
	}
	return nil
}

// spans returns the first node of each component and the one after its last. For other jobs it returns one span, that of the step, which
// may have fewer nodes than the job.
func (a Allocation) spans() [][2]int {
	if a.Components == nil {
		return [][2]int{{0, a.stepNodes()}}
	}
	spans := make([][2]int, len(a.Components))
	first := 0
	for i, c := range a.Components {
		spans[i] = [2]int{first, first + c.Nodes}
		first += c.Nodes
	}
	return spans
}

// listOrder returns the indices of nodes in the order of Slurm's lists. It is the order of SLURM_NODEID, but in a heterogeneous job the
// nodes are sorted by name (seen in Slurm 22.05).
func (a Allocation) listOrder(nodes []Node) []int {
	order := make([]int, len(nodes))
	for i := range order {
		order[i] = i
	}
	if a.Components != nil {
		slices.SortFunc(order, func(i, j int) int { return byName(nodes[i].Name, nodes[j].Name) })
	}
	return order
}

// byName compares names as Slurm sorts them: the numbers at their ends count as numbers.
func byName(a, b string) int {
	const digits = "0123456789"
	textA, textB := strings.TrimRight(a, digits), strings.TrimRight(b, digits)
	numberA, numberB := strings.TrimLeft(a[len(textA):], "0"), strings.TrimLeft(b[len(textB):], "0")
	return cmp.Or(strings.Compare(textA, textB), cmp.Compare(len(numberA), len(numberB)), strings.Compare(numberA, numberB),
		cmp.Compare(len(a), len(b)))
}

// reordered returns the elements of list with the indices in order.
func reordered[T any](list []T, order []int) []T {
	picked := make([]T, len(order))
	for to, from := range order {
		picked[to] = list[from]
	}
	return picked
}

// componentsEnviron returns the variables that describe each component to every task and to the batch script of a heterogeneous job, under
// today's names and under those of Slurm before 20.02.
func (a Allocation) componentsEnviron() []string {
	if a.Components == nil {
		return nil
	}
	size := strconv.Itoa(len(a.Components))
	env := []string{"SLURM_HET_SIZE=" + size, "SLURM_PACK_SIZE=" + size}
	for i, span := range a.spans() {
		for _, entry := range a.componentEnviron(i, span) {
			name, value, _ := strings.Cut(entry, "=")
			for _, word := range []string{"HET", "PACK"} {
				env = append(env, fmt.Sprintf("%s_%s_GROUP_%d=%s", name, word, i, value))
			}
		}
	}
	return env
}

// componentEnviron returns the variables that describe one component, without their suffix.
func (a Allocation) componentEnviron(i int, span [2]int) []string {
	nodes, tasks := a.Nodes[span[0]:span[1]], a.tasks()[span[0]:span[1]]
	total := 0
	for _, n := range tasks {
		total += n
	}
	env := []string{
		"SLURM_JOB_ID=" + strconv.Itoa(a.JobID+i),
		"SLURM_JOB_NAME=" + a.JobName,
		"SLURM_JOB_NODELIST=" + fold(nodes),
		"SLURM_JOB_NUM_NODES=" + strconv.Itoa(len(nodes)),
		"SLURM_JOB_PARTITION=" + partition,
		"SLURM_NPROCS=" + strconv.Itoa(total),
		"SLURM_NTASKS=" + strconv.Itoa(total),
		"SLURM_TASKS_PER_NODE=" + slurm.FormatTaskCounts(tasks),
	}
	if len(a.CPUs) > 0 {
		env = append(env, "SLURM_JOB_CPUS_PER_NODE="+slurm.FormatTaskCounts(a.cpus()[span[0]:span[1]]))
	}
	env = appendSet(env, "SLURM_NTASKS_PER_NODE", a.Components[i].TasksPerNode)
	return appendSet(env, "SLURM_CPUS_PER_TASK", a.Components[i].CPUsPerTask)
}

// leader returns the job as the variables describe it to its first component, in which the batch script runs.
func (a Allocation) leader() Allocation {
	if a.Components == nil {
		return a
	}
	first := a.Components[0]
	a.Nodes, a.Nodelist, a.Components = a.Nodes[:first.Nodes], "", nil
	if len(a.CPUs) > 1 {
		a.CPUs = a.CPUs[:first.Nodes]
	}
	a.TasksPerNode, a.CPUsPerTask = first.TasksPerNode, 0 // Slurm sets the latter only with the component's suffix
	return a
}
