package torchrun

import (
	"slices"
	"strings"
	"syscall"
	"time"

	words "ddpbatch/internal/text"
	"ddpbatch/mpi/launch"
	streams "ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/launch/reach"
)

// Flags are run's flags: torchrun's of all versions up to 2.9, that of torch.distributed.launch, and ddpbatch's own. docs/cli/run.md lists
// the differences.
var Flags = slices.Concat(nodeFlags, commandFlags, outputFlags, endFlags, idleFlags)

// nodeFlags set how many nodes and workers there are, and how they meet.
var nodeFlags = []*Flag{
	{Name: "nproc-per-node", Word: "N", Usage: "workers on this node: a number, gpu, cpu or auto",
		set: func(o *Options, text string) error {
			o.Nproc = text
			_, err := launch.ParseNproc(text)
			return err
		}},
	{Name: "nnodes", Word: "N|MIN:MAX", Usage: "nodes; with a range the run continues with at least MIN of them. Not needed under srun",
		set: parsed(parseNodes, func(o *Options) *NodeRange { return &o.Nodes })},
	{Name: "standalone", Usage: "one node, even if there are more", set: switchOf(func(o *Options) *bool { return &o.Standalone })},
	{Name: "node-rank", Word: "I", Usage: "this node's number, from 0",
		set: numberOf(mostNodes-1, func(o *Options) *int { return &o.NodeRank })},
	{Name: "master-addr", Word: "HOST", Usage: "node 0's name or address; the workers' MASTER_ADDR",
		set: parsed(parseHost, func(o *Options) *string { return &o.MasterAddr })},
	{Name: "master-port", Word: "PORT", Usage: "the workers' MASTER_PORT; agents meet on one of the eight ports after it (default 29500)",
		set: numberOf(65535, func(o *Options) *int { return &o.MasterPort })},
	{Name: "rdzv-backend", Word: "NAME", Usage: "static: nodes have numbers; c10d: they are numbered as they arrive (default: static)",
		set: setBackend},
	{Name: "rdzv-endpoint", Word: "HOST:PORT", Usage: "where nodes meet", blank: true, set: setEndpoint},
	{Name: "rdzv-id", Word: "ID", Usage: "identifies this run; the workers' TORCHELASTIC_RUN_ID",
		set: textOf(func(o *Options) *string { return &o.Rendezvous.ID })},
	{Name: "rdzv-conf", Word: "KEY=VALUE,...", Usage: "further settings: join_timeout, last_call_timeout or is_host",
		blank: true, set: setConf},
	{Name: "local-addr", Word: "HOST", Usage: "this node's address for the others",
		set: parsed(parseHost, func(o *Options) *string { return &o.LocalAddr })},
	{Name: "interface", Word: "NETWORKS", Usage: "networks to meet and communicate on, as in NCCL_SOCKET_IFNAME", own: true,
		set: func(o *Options, text string) error {
			o.Interface = text
			_, err := reach.ParseInterface(text)
			return err
		}},
	{Name: "join-timeout", Word: "TIME", Usage: "how long nodes wait for each other; then they end with 124 (default 5m)", own: true,
		set: spanOf(time.Millisecond, func(o *Options) *time.Duration { return &o.JoinTimeout })},
}

// commandFlags set what a worker runs, and what it sees.
var commandFlags = []*Flag{
	{Name: "module", Short: 'm', Usage: "the argument after the flags is a Python module",
		set: switchOf(func(o *Options) *bool { return &o.Module })},
	{Name: "no-python", Usage: "the argument after the flags is a program, as after --",
		set: switchOf(func(o *Options) *bool { return &o.NoPython })},
	{Name: "run-path", Usage: "run the script with runpy.run_path", set: switchOf(func(o *Options) *bool { return &o.RunPath })},
	{Name: "use-env", own: true, Usage: "has no effect: workers always find LOCAL_RANK in the environment",
		set: switchOf(func(o *Options) *bool { return &o.UseEnv })},
	{Name: "pass-local-rank", own: true, Usage: "pass --local-rank=N to the script, as torch.distributed.launch does",
		set: switchOf(func(o *Options) *bool { return &o.PassLocalRank })},
	{Name: "role", Word: "NAME", Usage: "the workers' ROLE_NAME (default default)",
		set: textOf(func(o *Options) *string { return &o.Role })},
	{Name: "torch-store", own: true, off: true,
		Usage: "serve PyTorch's store at MASTER_PORT (default: for Python without --master-port); =false: leave the port to rank 0",
		set:   switchOf(func(o *Options) *bool { return &o.TorchStore })},
	{Name: "gpus", Word: "WHICH", own: true, Usage: "GPUs that a worker sees: all, one or auto (default auto)",
		set: wordOf(func(o *Options) *string { return &o.GPUs }, "all", "one", "auto")},
	{Name: "virtual-local-rank", Usage: "each worker sees one GPU and has LOCAL_RANK=0",
		set: switchOf(func(o *Options) *bool { return &o.VirtualLocalRank })},
	{Name: "numa-binding", Word: "HOW", Usage: "bind each worker to cores near its GPU: node, socket, exclusive or core-complex",
		set: wordOf(func(o *Options) *string { return &o.NUMA }, "node", "socket", "exclusive", "core-complex")},
}

// outputFlags set where the workers' output goes.
var outputFlags = []*Flag{
	{Name: "log-dir", Old: "logdir", Word: "DIR", Usage: "folder for the workers' logs and error files",
		set: pathOf(func(o *Options) *string { return &o.LogDir })},
	{Name: "redirects", Short: 'r', Word: "MODE",
		Usage: "streams to files only: 0 none, 1 stdout, 2 stderr, 3 both; or LOCAL_RANK:MODE,...",
		set:   parsed(streams.ParseMap, func(o *Options) *streams.Map { return &o.Output.Redirects })},
	{Name: "tee", Short: 't', Word: "MODE", Usage: "streams to files and console, as in --redirects",
		set: parsed(streams.ParseMap, func(o *Options) *streams.Map { return &o.Output.Tees })},
	{Name: "local-ranks-filter", Word: "RANKS", Usage: "local ranks whose output the console shows: 0,2,4-7", blank: true,
		set: parsed(streams.ParseRanks, func(o *Options) *[]int { return &o.Output.LocalRanks })},
	{Name: "ranks-filter", Word: "RANKS", own: true, Usage: "ranks of the world whose output the console shows",
		set: parsed(streams.ParseRanks, func(o *Options) *[]int { return &o.Output.Ranks })},
	{Name: "duplicate-stdout-filters", Word: "TEXT,...", Usage: "lines with one of these also go to one file for all ranks; ,, is a comma",
		blank: true, set: filtersOf(func(o *Options) *[]string { return &o.Output.OutFilters })},
	{Name: "duplicate-stderr-filters", Word: "TEXT,...", Usage: "the same for stderr", blank: true,
		set: filtersOf(func(o *Options) *[]string { return &o.Output.ErrFilters })},
	{Name: "prefix", Word: "TEXT", own: true, blank: true,
		Usage: "prefix of each line on the console: ${host} ${rank} ${local_rank} ${role_name}",
		set: func(o *Options, text string) error {
			o.Output.Prefix = text
			return streams.ParsePrefix(text)
		}},
}

// endFlags set when workers end, and what follows.
var endFlags = []*Flag{
	{Name: "max-restarts", Word: "N", Usage: "how often the workers of all nodes are restarted after a failure (default 0)",
		set: numberOf(mostRestarts, func(o *Options) *int { return &o.MaxRestarts })},
	{Name: "signals-to-handle", Word: "NAME,...", Usage: "signals that stop the run (default SIGTERM,SIGINT,SIGHUP,SIGQUIT)",
		set: parsed(parseSignals, func(o *Options) *[]syscall.Signal { return &o.Signals })},
	{Name: "shutdown-timeout", also: "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", Word: "TIME",
		Usage: "time for workers to end before they are killed (default 60s)",
		set:   spanOf(0, func(o *Options) *time.Duration { return &o.ShutdownTimeout })},
	{Name: "hang", Word: "TIME", own: true,
		Usage: "workers without output, CPU time or heartbeat for this long have failed; 0: never (default: never)",
		set:   spanOrNone(func(o *Options) *time.Duration { return &o.Hang })},
}

// mostRestarts is larger than useful for any job.
const mostRestarts = 1 << 20

// idleFlags are torchrun's flags that have no effect here. They are checked, and the reason is reported.
var idleFlags = []*Flag{
	{Name: "monitor-interval", Word: "SECONDS", Usage: "has no effect: an exit is noticed at once",
		idle: "an exit is noticed at once, without polling",
		set:  spanOf(0, func(o *Options) *time.Duration { return &o.ignoredSpan })},
	{Name: "start-method", Word: "HOW", Usage: "has no effect: each worker is a separate program",
		idle: "it applies to Python functions, and each worker is a separate program",
		set:  wordOf(func(o *Options) *string { return &o.startMethod }, "spawn", "fork", "forkserver")},
	{Name: "event-log-handler", Word: "NAME", Usage: "has no effect: events are in the run directory's ledger",
		idle: "events go to the run directory's ledger.jsonl", set: textOf(func(o *Options) *string { return &o.ignored })},
	{Name: "logs-specs", Word: "NAME", Usage: "has no effect: it names Python code",
		idle: "it names Python code; --log-dir, --tee and --redirects control the output",
		set:  textOf(func(o *Options) *string { return &o.ignored })},
}

func filtersOf(field func(*Options) *[]string) setter {
	return func(o *Options, text string) error {
		*field(o) = streams.ParseFilters(text)
		return nil
	}
}

// Flag is one flag of run. The flag package of the other commands is not suitable: torchrun accepts -r3 and -mr 3 but not -nnodes, its
// flags may be abbreviated, and its lines end at the script, whose own flags may have the same names.
type Flag struct {
	Name  string // with dashes; underscores are accepted instead
	Short byte   // 0: none
	Word  string // stands for the value in help; "": a switch
	Usage string
	own   bool   // torchrun does not have it: no PET_ variable, no abbreviation of the name
	blank bool   // the empty text is a valid value
	off   bool   // a switch that may be on by default: --NAME=false turns it off
	Old   string // its name in older versions, which cannot be abbreviated; "": none
	also  string // a second variable of torchrun; PET_ takes precedence; "": none
	idle  string // why it has no effect here; "": it has
	set   func(o *Options, text string) error
}

// IsSwitch reports whether the flag takes no value.
func (f *Flag) IsSwitch() bool { return f.Word == "" }

// variables returns the environment variables that replace a missing flag, in order of precedence.
func (f *Flag) variables() (names []string) {
	for _, name := range []string{f.variable(), f.also} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// variable returns torchrun's own variable for the flag, or "".
func (f *Flag) variable() string {
	if f.own {
		return ""
	}
	return "PET_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// flagNamed returns the flag with a name in either spelling, or nil.
func flagNamed(name string) *Flag {
	name = strings.ReplaceAll(name, "_", "-")
	i := slices.IndexFunc(Flags, func(f *Flag) bool { return name == f.Name || name == f.Old && f.Old != "" })
	if i < 0 {
		return nil
	}
	return Flags[i]
}

// flagShort returns the flag of one letter, or nil.
func flagShort(letter byte) *Flag {
	i := slices.IndexFunc(Flags, func(f *Flag) bool { return f.Short == letter && letter != 0 })
	if i < 0 {
		return nil
	}
	return Flags[i]
}

// flagsFrom returns torchrun's flags whose names begin with beginning: torchrun accepts an abbreviation that only one flag matches.
// ddpbatch's own flags cannot be abbreviated, so that they do not make abbreviations of torchrun's ambiguous.
func flagsFrom(beginning string) (list []*Flag) {
	for _, f := range Flags {
		if !f.own && strings.HasPrefix(f.Name, strings.ReplaceAll(beginning, "_", "-")) {
			list = append(list, f)
		}
	}
	return list
}

// nearFlag returns the flag that an unknown name probably means: the name has a typing error, or is the beginning of a flag's name, perhaps
// in the plural (nprocs). It returns "" if there is none.
func nearFlag(name string) string {
	name = strings.ReplaceAll(name, "_", "-")
	names := make([]string, len(Flags))
	for i, f := range Flags {
		names[i] = f.Name
	}
	if near := words.Nearest(name, names); near != "" {
		return near
	}
	if cut := flagsFrom(strings.TrimSuffix(name, "s")); len(cut) == 1 {
		return cut[0].Name
	}
	return ""
}
