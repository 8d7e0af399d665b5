package device

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Request is what a node's agent wants of its cores and GPUs for one worker.
type Request struct {
	LocalRank, LocalWorldSize int

	// GPUs is which GPUs a worker sees: "all" of the agent's (LOCAL_RANK picks one, as under torchrun; workers may share), "one" of
	// its own, or "auto" and "": all, where there are as many as workers, and else an error; a warning where only the machine's own
	// files tell of GPUs.
	GPUs string
	// VirtualLocalRank is torchrun's --virtual-local-rank: each worker sees one GPU and has LOCAL_RANK=0.
	VirtualLocalRank bool
	NUMA             string // torchrun's --numa-binding: "", "node", "socket", "exclusive", "core-complex"
	Builtin          bool   // ddpbatch's own trainer: its workers are bound to cores of their own where there are enough
	Task             bool   // this worker is a task of srun (task mode), which may have bound it already
	Scripted         bool   // srun was called by ddpbatch's own batch script
	Pretend          bool   // srun was not called: this machine plays several nodes
	CPUsPerTask      int    // what the job asked for, per worker; 0: nothing
	Lookup           func(string) (string, bool)
}

// Share is what one worker gets.
type Share struct {
	Cores    *unix.CPUSet // to bind it to; nil: it keeps the agent's
	Own      bool         // no other worker has these cores
	Threads  int          // OMP_NUM_THREADS, unless the user has set it
	Env      []string     // NAME=value: which GPUs it sees, and LOCAL_RANK where that is virtual
	Warnings []string     // sentences, the same for all workers of a node where they concern all
}

// Node is this machine as its agent may use it. Its methods are for one goroutine at a time.
type Node struct {
	granted []int // cores that this process may run on (sched_getaffinity(2))
	machine machine
}

// This looks at this machine.
func This() (*Node, error) {
	var mask unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mask); err != nil {
		return nil, fmt.Errorf("read which cores this process may use: %w", err)
	}
	return NodeOf(cores(&mask), os.DirFS("/")), nil
}

// NodeOf is a machine whose files are below root, where this process may run on the given cores.
func NodeOf(granted []int, root fs.FS) *Node { return &Node{granted, machine{root: root}} }

// Cores is how many cores this process, and so a worker, may run on.
func (n *Node) Cores() int { return len(n.granted) }

// Assign plans for one worker.
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
		return fmt.Errorf("local rank %d of %d: there is no such worker", r.LocalRank, r.LocalWorldSize)
	}
	return nil
}

func (p *Share) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

// threads plans OMP_NUM_THREADS: the physical cores that are the worker's, or its share of the agent's. torchrun's 1 leaves cores
// idle, and without a number every worker uses all of them.
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
func (r Request) warnFewCores(p *Share, granted int, m *machine) {
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
