package device

import (
	"strconv"
)

// threads plans OMP_NUM_THREADS: the physical cores that are the worker's, or its share of the agent's. torchrun's 1 leaves cores
// idle, and without a number every worker uses all of them.
func (r Request) threads(p *Plan, granted []int, m *machine) {
	switch {
	case r.OMP == "torchrun" && r.LocalWorldSize > 1:
		p.Threads = 1
	case p.Own:
		p.Threads = max(1, physical(cores(p.Cores), m))
	case r.boundBySrun(len(granted)):
		p.Threads = max(1, physical(granted, m))
	default:
		p.Threads = max(1, physical(granted, m)/r.LocalWorldSize)
	}
}

// boundBySrun tells whether the cores of this task are nobody else's: srun(1), --cpu-bind. Then there are fewer of them than
// the step has on the node.
func (r Request) boundBySrun(granted int) bool {
	text, _ := r.Lookup("SLURM_CPUS_ON_NODE")
	onNode, err := strconv.Atoi(text)
	return r.Task && err == nil && granted < onNode
}

// physical counts cores, hardware threads of one core as one; where the machine does not say, each is one.
func physical(list []int, m *machine) int {
	siblings := m.siblings()
	if len(siblings) == 0 {
		return len(list)
	}
	n := 0
	for _, core := range siblings {
		if overlaps(core, list) {
			n++
		}
	}
	return n
}

// warnFewCores says where the workers have fewer cores than they need: the machine has no more, whatever Slurm counts, or srun gave less.
// That takes over the job's cpus-per-task in some releases and not in others (srun(1), --cpus-per-task: 22.05 and 23.02 do not), and a
// step without it has one core for each task.
func (r Request) warnFewCores(p *Plan, granted int, m *machine) {
	if _, step := r.Lookup("SLURM_STEP_ID"); !step || r.Pretend {
		return
	}
	workers := r.LocalWorldSize
	if r.Task {
		workers = 1
	}
	remedy := "pass --cpus-per-task to srun itself, with --cpu-bind=none where one agent runs on each node"
	if r.Scripted { // which does so
		remedy = "the batch script asked for all of them, and not to be bound, so that the site's configuration of Slurm confines the step"
	}
	few := r.CPUsPerTask > 0 && granted < r.CPUsPerTask*workers
	switch {
	case few && granted == len(m.online()):
		p.warn("the job asked for %d cores a worker, and this machine has %d for %d: ask for fewer (slurm.cpus_per_task); "+
			"Slurm counts more cores here than there are (slurmd -C shows these)", r.CPUsPerTask, granted, workers)
	case granted == 1 && len(m.online()) == 1: // nobody could give more
	case few:
		p.warn("the job asked for %d cores a worker, and srun granted %d for %d: %s", r.CPUsPerTask, granted, workers, remedy)
	case granted == 1 && workers > 1:
		p.warn("srun granted 1 core for %d workers: %s", workers, remedy)
	}
}
