package device

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Request describes the worker that a node's agent wants cores and GPUs for.
type Request struct {
	LocalRank, LocalWorldSize int

	// GPUs is which of the agent's GPUs a worker sees. "all": all of them (LOCAL_RANK picks one, as under torchrun; workers may
	// share). "one": one of its own. "auto" or "": all, and too few GPUs for the workers are an error, or only a warning if the
	// GPUs are known from the machine's files alone.
	GPUs string
	// VirtualLocalRank is torchrun's --virtual-local-rank: each worker sees one GPU and has LOCAL_RANK=0.
	VirtualLocalRank bool
	NUMA             string // torchrun's --numa-binding: "", "node", "socket", "exclusive", "core-complex"
	Builtin          bool   // ddpbatch's own trainer: each worker is bound to its own cores, if there are enough
	Task             bool   // this worker is a task of srun (task mode), which may have bound it already
	Scripted         bool   // srun was called by ddpbatch's own batch script
	Pretend          bool   // srun was not called: this machine simulates several nodes
	CPUsPerTask      int    // the cores that the job asked for per worker; 0: none
	Lookup           func(string) (string, bool)
}

// Share is what one worker gets.
type Share struct {
	Cores    *unix.CPUSet // to bind the worker to; nil: it keeps the agent's
	Own      bool         // only this worker has these cores
	Threads  int          // OMP_NUM_THREADS, unless the user has set it
	Env      []string     // NAME=value: which GPUs it sees, and LOCAL_RANK if that is virtual
	Warnings []string     // sentences; those about all workers of a node are the same for each
}

// Node is this machine as its agent may use it. Only one goroutine at a time may call its methods.
type Node struct {
	granted []int // cores that this process may run on (sched_getaffinity(2))
	machine machine
}

// This returns this machine.
func This() (*Node, error) {
	var mask unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mask); err != nil {
		return nil, fmt.Errorf("read which cores this process may use: %w", err)
	}
	return NodeOf(cores(&mask), os.DirFS("/")), nil
}

// NodeOf returns a machine whose files are below root, and on which this process may run on the given cores.
func NodeOf(granted []int, root fs.FS) *Node { return &Node{granted, machine{root: root}} }

// Cores is how many cores this process, and so a worker, may run on.
func (n *Node) Cores() int { return len(n.granted) }

// Assign plans the cores and GPUs of one worker.
func (n *Node) Assign(r Request) (Share, error) {
	if err := r.check(); err != nil {
		return Share{}, err
	}
	var p Share
	gpus, err := r.gpus(&p, n)
	if err != nil {
		return Share{}, err
	}
	if err := r.bind(&p, n.granted, gpus, &n.machine); err != nil {
		return Share{}, err
	}
	r.threads(&p, n.granted, &n.machine)
	r.warnFewCores(&p, len(n.granted), &n.machine)
	return p, nil
}

func (r Request) check() error {
	switch r.GPUs {
	case "", "auto", "all", "one":
	default:
		return fmt.Errorf("GPUs %.40q: write auto, all or one", r.GPUs)
	}
	switch r.NUMA {
	case "", "node", "socket", "exclusive", "core-complex":
	default:
		return fmt.Errorf("NUMA binding %.40q: write node, socket, exclusive or core-complex", r.NUMA)
	}
	if r.LocalWorldSize < 1 || r.LocalRank < 0 || r.LocalRank >= r.LocalWorldSize {
		return fmt.Errorf("local rank %d is not in a local world of %d", r.LocalRank, r.LocalWorldSize)
	}
	return nil
}

func (p *Share) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

// threads plans OMP_NUM_THREADS: the number of physical cores of the worker, or its share of the agent's. torchrun's default of 1
// leaves cores idle, and without the variable every worker would use all cores.
func (r Request) threads(p *Share, granted []int, m *machine) {
	switch {
	case p.Own:
		p.Threads = max(1, physical(cores(p.Cores), m))
	case r.boundBySrun(len(granted)):
		p.Threads = max(1, physical(granted, m))
	default:
		p.Threads = max(1, physical(granted, m)/r.LocalWorldSize)
	}
}

// boundBySrun reports whether srun has bound this task to its own cores (srun(1), --cpu-bind). Then it has fewer cores than the
// step has on the node.
func (r Request) boundBySrun(granted int) bool {
	text, _ := r.Lookup("SLURM_CPUS_ON_NODE")
	onNode, err := strconv.Atoi(text)
	return r.Task && err == nil && granted < onNode
}

// physical counts physical cores. If the machine does not report which hardware threads share a core, each counts as one.
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

// warnFewCores warns if the workers have fewer cores than they need: the machine has fewer than Slurm counts, or srun granted
// fewer. In some releases srun takes the job's cpus-per-task and in others it does not (srun(1), --cpus-per-task: 22.05 and 23.02
// do not). A step without it has one core for each task.
func (r Request) warnFewCores(p *Share, granted int, m *machine) {
	if _, step := r.Lookup("SLURM_STEP_ID"); !step || r.Pretend {
		return
	}
	workers := r.LocalWorldSize
	if r.Task {
		workers = 1
	}
	remedy := "pass --cpus-per-task to srun itself, and --cpu-bind=none if one agent runs on each node"
	if r.Scripted { // the script passes both
		remedy = "the batch script asked for all of them, without binding, so the site's Slurm configuration confines the step"
	}
	few := r.CPUsPerTask > 0 && granted < r.CPUsPerTask*workers
	switch {
	case few && granted == len(m.online()):
		p.warn("the job asked for %d cores a worker, and this machine has %d for %d: ask for fewer (slurm.cpus_per_task); "+
			"Slurm counts more cores here than exist (slurmd -C shows how many)", r.CPUsPerTask, granted, workers)
	case granted == 1 && len(m.online()) == 1: // the machine has only one
	case few:
		p.warn("the job asked for %d cores a worker, and srun granted %d for %d: %s", r.CPUsPerTask, granted, workers, remedy)
	case granted == 1 && workers > 1:
		p.warn("srun granted 1 core for %d workers: %s", workers, remedy)
	}
}
