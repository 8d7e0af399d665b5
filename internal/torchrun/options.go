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

// Options holds run's flags, and torchrun's PET_ variables for missing flags.
type Options struct {
	given map[string]string // for each flag how it was given: --nnodes or PET_NNODES

	// number of nodes and workers, and how they meet
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

	// the workers' command and environment
	Command          []string
	Dashed           bool // the command follows --
	Module           bool
	NoPython         bool
	RunPath          bool
	UseEnv           bool
	PassLocalRank    bool
	Role             string
	TorchStore       bool
	GPUs, NUMA       string
	VirtualLocalRank bool

	// the workers' output
	LogDir string
	Output streams.Config

	// the workers' end
	MaxRestarts     int
	ShutdownTimeout time.Duration
	Hang            time.Duration
	Signals         []syscall.Signal

	startMethod string // only checked, as torchrun does
	ignored     string // of the flags without effect
	ignoredSpan time.Duration
}

// Parse parses run's command line. help reports whether it asks for help.
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

// setFromVariables looks up a missing flag in its variables.
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
		return nil // as if it were not set
	}
	o.given[s.flag.Name] = s.how
	return nil
}

// Has reports whether a flag was given, by itself or by a variable.
func (o *Options) Has(name string) bool { _, given := o.given[name]; return given }

// How returns a flag as it was given.
func (o *Options) How(name string) string {
	if how := o.given[name]; how != "" {
		return how
	}
	return "--" + name
}

// check finds flags that contradict each other, independent of where they run.
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
		return clash("use-env", "pass-local-rank", "run always does what the first one says")
	case o.Standalone && nodes > 1:
		return usage.Errorf("%s means one node, but %s is %d; leave one of them out", o.How("standalone"), o.How("nnodes"), nodes)
	case o.NodeRank >= nodes && o.Nodes.Max > 0:
		return usage.Errorf("%s is %d; it must be 0 to %d (--nnodes is %d)", o.How("node-rank"), o.NodeRank, nodes-1, nodes)
	case o.Has("interface") && o.Has("local-addr"):
		return clash("interface", "local-addr", "each of them selects the network")
	case o.VirtualLocalRank && o.GPUs == "all":
		return clash("virtual-local-rank", "gpus", "the first one already shows one GPU to each worker")
	}
	return o.checkEndpoint()
}

// checkEndpoint takes --master-addr and --master-port from --rdzv-endpoint, as the static backend does.
func (o *Options) checkEndpoint() error {
	if o.Standalone || o.Rendezvous.Host == "" || o.Rendezvous.Backend == C10d {
		return nil
	}
	if o.Has("master-addr") && o.MasterAddr != o.Rendezvous.Host || o.Has("master-port") && o.Rendezvous.Port >= 0 &&
		o.MasterPort != o.Rendezvous.Port {
		return &usage.Error{
			Message: fmt.Sprintf("%s is %s, but %s and %s say %s:%d", o.How("rdzv-endpoint"),
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

// NprocOf returns how many workers a node runs, according to the flags or else to the job.
func (o *Options) NprocOf(job launch.Nproc) launch.Nproc {
	if o.Nproc == "" {
		return job
	}
	n, _ := launch.ParseNproc(o.Nproc) // its setter has checked it
	return n
}

// WantsFiles reports whether any output is to go to files.
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

// Notes returns which of the options never have an effect, and why. comes reports whether the agents of the run are numbered in the order
// in which they arrive.
func (o *Options) Notes(environ []string, comes bool) (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	for _, f := range idleFlags {
		if o.Has(f.Name) {
			note("%s has no effect: %s", o.How(f.Name), f.idle)
		}
	}
	keys := o.Rendezvous.Conf.Idle
	if o.Rendezvous.Conf.IsHost != nil && !comes {
		keys = append(slices.Clone(keys), "is_host") // there is one node, or the nodes have numbers
	}
	if len(keys) > 0 {
		note("%s: %s: nothing here depends on it", o.How("rdzv-conf"), strings.Join(keys, ", "))
	}
	for name, near := range nearVariables(environ) {
		note("%s is not a variable of run: did you mean %s?", name, near)
	}
	if o.meantPython() {
		note("the command after -- is run as it is; without --, Python runs %s", o.Command[0])
	}
	return notes
}

// nearVariables returns variables whose names are nearly torchrun's, with the probable meaning. They have no effect.
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
