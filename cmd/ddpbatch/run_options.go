package main

import (
	"fmt"
	"syscall"
	"time"

	"ddpbatch/internal/redact"
	"ddpbatch/mpi/launch"
	streams "ddpbatch/mpi/launch/output"
)

// runOptions are run's flags, and torchrun's PET_ variables where the flags say nothing.
type runOptions struct {
	given map[string]string // by flag: how it was given, --nnodes or PET_NNODES

	// how many, and how they meet
	nproc      string // "": not given
	nnodes     nodeRange
	nodeRank   int
	standalone bool
	masterAddr string
	masterPort int
	rdzv       rendezvous
	localAddr  string
	network    string
	joinLimit  time.Duration // 0: not given

	// what a worker is
	command       []string
	dashed        bool // the command stood after --
	module        bool
	noPython      bool
	runPath       bool
	useEnv        bool
	passLocalRank bool
	role          string
	torchStore    bool
	gpus, numa    string
	virtualRank   bool

	// what becomes of its output
	logDir                 string
	redirects, tees        streams.Map
	localRanks, ranks      []int
	prefix                 string
	outFilters, errFilters []string

	// when it ends
	maxRestarts int
	grace       time.Duration
	hang        time.Duration
	signals     []syscall.Signal

	startMethod string // torchrun checks it, and so do we
	ignored     string // of the flags that change nothing
	ignoredSpan time.Duration
}

// parseRun reads run's command line. help tells that it asks for help.
func parseRun(words []string, lookup func(string) (string, bool)) (o runOptions, help bool, err error) {
	line, err := parseRunLine(words)
	if err != nil || line.help {
		return o, line.help, err
	}
	o = runOptions{
		given: make(map[string]string), command: line.words, dashed: line.dashed,
		masterAddr: "127.0.0.1", masterPort: 29500, rdzv: rendezvous{port: -1},
	}
	values := make(map[string]string)
	for _, s := range line.flags {
		if before, twice := values[s.flag.name]; twice && before != s.value {
			return o, false, &usageError{
				message: fmt.Sprintf("%s is given twice, as %q and as %q", s.how, redact.Text(before), redact.Text(s.value)),
				hint:    "leave one of them out",
			}
		}
		values[s.flag.name] = s.value
		if err := o.set(s); err != nil {
			return o, false, err
		}
	}
	for _, f := range runFlags {
		if err := o.setFromVariables(f, lookup); err != nil {
			return o, false, err
		}
	}
	return o, false, o.check()
}

// setFromVariables looks for a flag that the command line left out.
func (o *runOptions) setFromVariables(f *runFlag, lookup func(string) (string, bool)) error {
	if o.has(f.name) {
		return nil
	}
	for _, name := range f.variables() {
		if value, _ := lookup(name); value != "" {
			return o.set(runSetting{flag: f, how: name, value: value})
		}
	}
	return nil
}

func (o *runOptions) set(s runSetting) error {
	if err := s.flag.set(o, s.value); err != nil {
		return usagef("%s: %v", s.how, err)
	}
	if s.flag.isSwitch() && s.value == "0" && !s.flag.off {
		return nil // as if it were not there
	}
	o.given[s.flag.name] = s.how
	return nil
}

// has tells whether a flag was given, in any way.
func (o *runOptions) has(name string) bool { _, given := o.given[name]; return given }

// how is a flag as it was given.
func (o *runOptions) how(name string) string {
	if how := o.given[name]; how != "" {
		return how
	}
	return "--" + name
}

// check finds flags that contradict each other, wherever they are to run.
func (o *runOptions) check() error {
	clash := func(a, b, hint string) error {
		return &usageError{message: o.how(a) + " and " + o.how(b) + " contradict each other", hint: hint}
	}
	nodes := max(1, o.nnodes.max)
	switch {
	case o.module && o.noPython:
		return clash("module", "no-python", "a module is run by Python")
	case o.module && o.runPath:
		return clash("module", "run-path", "name either a module or a script")
	case len(o.command) > 0 && o.command[0] == "":
		return usagef("the command to run is empty")
	case o.useEnv && o.passLocalRank:
		return clash("use-env", "pass-local-rank", "the first one is what run does by itself")
	case o.standalone && nodes > 1:
		return usagef("%s is one node, and %s says %d; leave one of them out", o.how("standalone"), o.how("nnodes"), nodes)
	case o.nodeRank >= nodes && o.nnodes.max > 0:
		return usagef("%s is %d; it must be 0 to %d (--nnodes is %d)", o.how("node-rank"), o.nodeRank, nodes-1, nodes)
	case o.has("interface") && o.has("local-addr"):
		return clash("interface", "local-addr", "either says which network to use")
	case o.virtualRank && o.gpus == "all":
		return clash("virtual-local-rank", "gpus", "the first one shows one GPU to each worker")
	}
	return o.checkEndpoint()
}

// checkEndpoint lets --rdzv-endpoint say what --master-addr and --master-port do, as the static back end has it.
func (o *runOptions) checkEndpoint() error {
	if o.standalone || o.rdzv.host == "" || o.rdzv.backend == c10d {
		return nil
	}
	if o.has("master-addr") && o.masterAddr != o.rdzv.host || o.has("master-port") && o.rdzv.port >= 0 && o.masterPort != o.rdzv.port {
		return &usageError{
			message: fmt.Sprintf("%s says %s, and %s and %s say %s:%d", o.how("rdzv-endpoint"), joinEndpoint(o.rdzv.host, o.rdzv.port),
				o.how("master-addr"), o.how("master-port"), o.masterAddr, o.masterPort),
			hint: "leave the endpoint out",
		}
	}
	o.masterAddr, o.given["master-addr"] = o.rdzv.host, o.how("rdzv-endpoint")
	if o.rdzv.port >= 0 {
		o.masterPort, o.given["master-port"] = o.rdzv.port, o.how("rdzv-endpoint")
	}
	return nil
}

// nprocOf is how many workers a node runs: what the flags say, or else what the job does.
func (o *runOptions) nprocOf(job launch.Nproc) launch.Nproc {
	if o.nproc == "" {
		return job
	}
	n, _ := launch.ParseNproc(o.nproc) // its setter has read it
	return n
}
