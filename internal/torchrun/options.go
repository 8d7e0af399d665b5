package torchrun

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"syscall"
	"time"

	"ddpbatch/internal/redact"
	words "ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi/launch"
	streams "ddpbatch/mpi/launch/output"
)

// Options are run's flags, and torchrun's PET_ variables where the flags say nothing.
type Options struct {
	given map[string]string // by flag: how it was given, --nnodes or PET_NNODES

	// how many, and how they meet
	Nproc       string // "": not given
	Nodes       NodeRange
	NodeRank    int
	Standalone  bool
	MasterAddr  string
	MasterPort  int
	Rendezvous  Rendezvous
	LocalAddr   string
	Interface   string
	JoinTimeout time.Duration // 0: not given

	// what a worker is
	Command          []string
	Dashed           bool // the command stood after --
	Module           bool
	NoPython         bool
	RunPath          bool
	UseEnv           bool
	PassLocalRank    bool
	Role             string
	TorchStore       bool
	GPUs, NUMA       string
	VirtualLocalRank bool

	// what becomes of its output
	LogDir string
	Output streams.Config

	// when it ends
	MaxRestarts     int
	ShutdownTimeout time.Duration
	Hang            time.Duration
	Signals         []syscall.Signal

	startMethod string // torchrun checks it, and so do we
	ignored     string // of the flags that change nothing
	ignoredSpan time.Duration
}

// Parse reads run's command line. help tells that it asks for help.
func Parse(words []string, lookup func(string) (string, bool)) (o Options, help bool, err error) {
	line, err := parseLine(words)
	if err != nil || line.help {
		return o, line.help, err
	}
	o = Options{
		given: make(map[string]string), Command: line.words, Dashed: line.dashed,
		MasterAddr: "127.0.0.1", MasterPort: 29500, Rendezvous: Rendezvous{Port: -1},
	}
	values := make(map[string]string)
	for _, s := range line.flags {
		if before, twice := values[s.flag.Name]; twice && before != s.value {
			return o, false, &usage.Error{
				Message: fmt.Sprintf("%s is given twice, as %q and as %q", s.how, redact.Text(before), redact.Text(s.value)),
				Hint:    "leave one of them out",
			}
		}
		values[s.flag.Name] = s.value
		if err := o.set(s); err != nil {
			return o, false, err
		}
	}
	for _, f := range Flags {
		if err := o.setFromVariables(f, lookup); err != nil {
			return o, false, err
		}
	}
	return o, false, o.check()
}

// setFromVariables looks for a flag that the command line left out.
func (o *Options) setFromVariables(f *Flag, lookup func(string) (string, bool)) error {
	if o.Has(f.Name) {
		return nil
	}
	for _, name := range f.variables() {
		if value, _ := lookup(name); value != "" {
			return o.set(setting{flag: f, how: name, value: value})
		}
	}
	return nil
}

func (o *Options) set(s setting) error {
	if err := s.flag.set(o, s.value); err != nil {
		return usage.Errorf("%s: %v", s.how, err)
	}
	if s.flag.IsSwitch() && s.value == "0" && !s.flag.off {
		return nil // as if it were not there
	}
	o.given[s.flag.Name] = s.how
	return nil
}

// Has tells whether a flag was given, in any way.
func (o *Options) Has(name string) bool { _, given := o.given[name]; return given }

// How is a flag as it was given.
func (o *Options) How(name string) string {
	if how := o.given[name]; how != "" {
		return how
	}
	return "--" + name
}

// check finds flags that contradict each other, wherever they are to run.
func (o *Options) check() error {
	clash := func(a, b, hint string) error {
		return &usage.Error{Message: o.How(a) + " and " + o.How(b) + " contradict each other", Hint: hint}
	}
	nodes := max(1, o.Nodes.Max)
	switch {
	case o.Module && o.NoPython:
		return clash("module", "no-python", "a module is run by Python")
	case o.Module && o.RunPath:
		return clash("module", "run-path", "name either a module or a script")
	case len(o.Command) > 0 && o.Command[0] == "":
		return usage.Errorf("the command to run is empty")
	case o.UseEnv && o.PassLocalRank:
		return clash("use-env", "pass-local-rank", "the first one is what run does by itself")
	case o.Standalone && nodes > 1:
		return usage.Errorf("%s is one node, and %s says %d; leave one of them out", o.How("standalone"), o.How("nnodes"), nodes)
	case o.NodeRank >= nodes && o.Nodes.Max > 0:
		return usage.Errorf("%s is %d; it must be 0 to %d (--nnodes is %d)", o.How("node-rank"), o.NodeRank, nodes-1, nodes)
	case o.Has("interface") && o.Has("local-addr"):
		return clash("interface", "local-addr", "either says which network to use")
	case o.VirtualLocalRank && o.GPUs == "all":
		return clash("virtual-local-rank", "gpus", "the first one shows one GPU to each worker")
	}
	return o.checkEndpoint()
}

// checkEndpoint lets --rdzv-endpoint say what --master-addr and --master-port do, as the static back end has it.
func (o *Options) checkEndpoint() error {
	if o.Standalone || o.Rendezvous.Host == "" || o.Rendezvous.Backend == C10d {
		return nil
	}
	if o.Has("master-addr") && o.MasterAddr != o.Rendezvous.Host || o.Has("master-port") && o.Rendezvous.Port >= 0 &&
		o.MasterPort != o.Rendezvous.Port {
		return &usage.Error{
			Message: fmt.Sprintf("%s says %s, and %s and %s say %s:%d", o.How("rdzv-endpoint"),
				JoinEndpoint(o.Rendezvous.Host, o.Rendezvous.Port),
				o.How("master-addr"), o.How("master-port"), o.MasterAddr, o.MasterPort),
			Hint: "leave the endpoint out",
		}
	}
	o.MasterAddr, o.given["master-addr"] = o.Rendezvous.Host, o.How("rdzv-endpoint")
	if o.Rendezvous.Port >= 0 {
		o.MasterPort, o.given["master-port"] = o.Rendezvous.Port, o.How("rdzv-endpoint")
	}
	return nil
}

// NprocOf is how many workers a node runs: what the flags say, or else what the job does.
func (o *Options) NprocOf(job launch.Nproc) launch.Nproc {
	if o.Nproc == "" {
		return job
	}
	n, _ := launch.ParseNproc(o.Nproc) // its setter has read it
	return n
}

// WantsFiles tells whether output is to go to files at all.
func (o *Options) WantsFiles() bool {
	return wantsFiles(o.Output.Tees) || wantsFiles(o.Output.Redirects) || len(o.Output.OutFilters)+len(o.Output.ErrFilters) > 0
}

func wantsFiles(m streams.Map) bool {
	if m.All != streams.None {
		return true
	}
	for _, mode := range m.Ranks {
		if mode != streams.None {
			return true
		}
	}
	return false
}

// Notes tell which of the options change nothing in any run, and why. comes: the agents of the run are numbered as they come.
func (o *Options) Notes(environ []string, comes bool) (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	for _, f := range idleFlags {
		if o.Has(f.Name) {
			note("%s changes nothing: %s", o.How(f.Name), f.idle)
		}
	}
	keys := o.Rendezvous.Conf.Idle
	if o.Rendezvous.Conf.IsHost != nil && !comes {
		keys = append(slices.Clone(keys), "is_host") // there is one node, or they have numbers
	}
	if len(keys) > 0 {
		note("%s: %s: nothing here depends on it", o.How("rdzv-conf"), strings.Join(keys, ", "))
	}
	for name, near := range nearVariables(environ) {
		note("%s is no variable of run's: did you mean %s?", name, near)
	}
	if o.meantPython() {
		note("what stands after -- is run as it is; without --, Python runs %s", o.Command[0])
	}
	return notes
}

// nearVariables are the variables whose names are nearly torchrun's, and those that are meant: they change nothing.
func nearVariables(environ []string) iter.Seq2[string, string] {
	var known []string
	for _, f := range Flags {
		known = append(known, f.variables()...)
	}
	return func(yield func(name, near string) bool) {
		for _, entry := range environ {
			name, _, _ := strings.Cut(entry, "=")
			if !strings.HasPrefix(name, "PET_") || slices.Contains(known, name) {
				continue
			}
			near := words.Nearest(name, known)
			if f := flagNamed(nearFlag(strings.ToLower(name[len("PET_"):]))); near == "" && f != nil {
				near = f.variable()
			}
			if near != "" && !yield(name, near) {
				return
			}
		}
	}
}
