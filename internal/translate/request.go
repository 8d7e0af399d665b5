package translate

import (
	"strconv"
	"strings"

	"ddpbatch/slurm"
)

// A request is what a script requests from Slurm, in the numbers that determine the ranks. If an option is given twice, the later one
// counts.
type request struct {
	options []slurm.Given // each name once, of the first component
	ranged  bool          // the number of nodes is a range, or was left to Slurm
	nodes   int           // at least 1
	tasks   []int         // of each node; one number if all have as many
	cpus    int           // per task; 0: not given
	gpus    int           // per node; 0: none or not known
}

// maxNodes is larger than any job; larger numbers are typing errors.
const maxNodes = 1 << 16

// maxListed is the largest number of nodes with individual numbers of ranks.
const maxListed = 1024

func newRequest(options []slurm.Given, nodesElsewhere int) *request {
	r := &request{}
	for _, g := range options {
		if g.Part > 0 {
			continue
		}
		for i, before := range r.options {
			if before.Name == g.Name {
				r.options = append(r.options[:i], r.options[i+1:]...)
				break
			}
		}
		r.options = append(r.options, g)
	}
	r.cpus = r.number("cpus-per-task")
	r.count(nodesElsewhere)
	r.gpus = r.gpusOfNode()
	return r
}

// get returns an option's value.
func (r *request) get(name string) (slurm.Given, bool) {
	for _, g := range r.options {
		if g.Name == name {
			return g, true
		}
	}
	return slurm.Given{}, false
}

// number returns an option's value if it is a positive integer, and otherwise 0.
func (r *request) number(name string) int {
	g, _ := r.get(name)
	n, err := strconv.Atoi(g.Value)
	if err != nil || n < 1 || n > maxNodes {
		return 0
	}
	return n
}

// count determines the number of nodes, and the tasks of each.
func (r *request) count(elsewhere int) {
	nodes, given := r.get("nodes")
	low, _, ranged := strings.Cut(nodes.Value, "-")
	r.nodes, _ = strconv.Atoi(low)
	if r.nodes < 1 || r.nodes > maxNodes {
		r.nodes, given = 0, false
	}
	r.ranged = given && ranged && nodes.Value != low+"-"+low
	total, each := r.number("ntasks"), r.number("ntasks-per-node")
	switch {
	case given:
	case total > 0 && each > 0:
		r.nodes = (total + each - 1) / each
	case elsewhere > 0:
		r.nodes = elsewhere
	default:
		r.nodes, r.ranged = 1, total > 1
	}
	switch {
	case total > 0 && total >= r.nodes && total%r.nodes == 0:
		r.tasks = []int{total / r.nodes}
	case total > r.nodes && r.nodes > maxListed:
		r.tasks = []int{(total + r.nodes - 1) / r.nodes}
	case total > r.nodes:
		for i := range r.nodes { // in blocks, as Slurm does
			n := total / r.nodes
			if i < total%r.nodes {
				n++
			}
			r.tasks = append(r.tasks, n)
		}
	case each > 0:
		r.tasks = []int{each}
	default:
		r.tasks = []int{max(1, r.number("ntasks-per-gpu")*r.gpusOfNode())}
	}
}

// most returns the largest number of tasks on a node.
func (r *request) most() int {
	most := 1
	for _, n := range r.tasks {
		most = max(most, n)
	}
	return most
}

// total returns the number of all tasks.
func (r *request) total() int {
	if len(r.tasks) == 1 {
		return r.tasks[0] * r.nodes
	}
	sum := 0
	for _, n := range r.tasks {
		sum += n
	}
	return sum
}

// gpusOfNode returns the number of GPUs of a node, as far as the options determine it.
func (r *request) gpusOfNode() int {
	if g, given := r.get("gpus-per-node"); given {
		return gpuCount(g.Value)
	}
	if g, given := r.get("gres"); given {
		for one := range strings.SplitSeq(g.Value, ",") {
			name, rest, _ := strings.Cut(strings.TrimPrefix(one, "gres:"), ":")
			if name == "gpu" {
				return gpuCount(rest)
			}
		}
	}
	if g, given := r.get("gpus-per-task"); given && len(r.tasks) == 1 {
		return gpuCount(g.Value) * r.tasks[0]
	}
	if g, given := r.get("gpus"); given && r.nodes > 0 && gpuCount(g.Value)%r.nodes == 0 {
		return gpuCount(g.Value) / r.nodes
	}
	return 0
}

// gpuCount parses "4", "a100:4", "a100" and "". It does not add up several types.
func gpuCount(text string) int {
	if strings.Contains(text, ",") {
		return 0
	}
	text, _, _ = strings.Cut(text, "(")
	n, err := strconv.Atoi(text[strings.LastIndexByte(text, ':')+1:])
	switch {
	case err != nil && !strings.Contains(text, ":"):
		return 1 // a type, or nothing
	case err != nil || n < 0 || n > maxNodes:
		return 0
	}
	return n
}

// variable returns the value that Slurm sets in the batch script. isKnown is also true for variables that it does not set.
func (r *request) variable(name string) (value string, isSet, isKnown bool) {
	number := func(n int) (string, bool, bool) {
		if n == 0 {
			return "", false, false
		}
		return strconv.Itoa(n), true, true
	}
	switch name {
	case "SLURM_NNODES", "SLURM_JOB_NUM_NODES":
		if r.ranged {
			return "", false, false
		}
		return number(r.nodes)
	case "SLURM_CPUS_PER_TASK":
		value, isSet, _ = number(r.cpus)
		return value, isSet, true
	case "SLURM_NTASKS_PER_NODE":
		value, isSet, _ = number(r.number("ntasks-per-node"))
		return value, isSet, true
	case "SLURM_NTASKS", "SLURM_NPROCS":
		if r.ranged {
			return number(r.number("ntasks"))
		}
		return number(r.total())
	case "SLURM_GPUS_ON_NODE":
		return number(r.gpus)
	case "SLURM_GPUS_PER_NODE":
		if _, given := r.get("gpus-per-node"); given {
			return number(r.gpus)
		}
		return "", false, true
	}
	return "", false, false
}
