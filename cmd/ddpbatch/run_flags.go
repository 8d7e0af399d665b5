package main

import (
	"slices"
	"time"

	"ddpbatch/mpi/launch"
	streams "ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/launch/reach"
)

// runFlags are run's flags: torchrun's of all versions up to 2.9, the one of torch.distributed.launch, and
// ddpbatch's own. docs/cli.md tells what differs.
var runFlags = slices.Concat(placeFlags, commandFlags, outputFlags, endFlags, idleFlags)

// placeFlags say how many nodes and workers there are, and how they meet.
var placeFlags = []*runFlag{
	{name: "nproc-per-node", word: "N", usage: "workers here: a number, gpu, cpu or auto", set: func(o *runOptions, text string) error {
		o.nproc = text
		_, err := launch.ParseNproc(text)
		return err
	}},
	{name: "nnodes", word: "N|MIN:MAX", usage: "nodes; with a range the run goes on with MIN of them. Not needed under srun", set: func(o *runOptions, text string) (err error) {
		o.nnodes, err = parseNodes(text)
		return err
	}},
	{name: "standalone", usage: "one node, whatever else there is", set: switchOf(func(o *runOptions) *bool { return &o.standalone })},
	{name: "node-rank", word: "I", usage: "this node's number, from 0", set: numberOf(0, mostNodes-1, func(o *runOptions) *int { return &o.nodeRank })},
	{name: "master-addr", word: "HOST", usage: "node 0's name or address (default 127.0.0.1)", set: func(o *runOptions, text string) (err error) {
		o.masterAddr, err = parseHost(text)
		return err
	}},
	{name: "master-port", word: "PORT", usage: "the workers' MASTER_PORT; agents meet on the eight after it (default 29500)", set: numberOf(0, 65535, func(o *runOptions) *int { return &o.masterPort })},
	{name: "rdzv-backend", word: "NAME", usage: "static (default: nodes have numbers) or c10d (they are numbered as they come)", set: setBackend},
	{name: "rdzv-endpoint", word: "HOST:PORT", usage: "where nodes meet", blank: true, set: setEndpoint},
	{name: "rdzv-id", word: "ID", usage: "tells this run from others; the workers' TORCHELASTIC_RUN_ID", set: textOf(func(o *runOptions) *string { return &o.rdzv.id })},
	{name: "rdzv-conf", word: "KEY=VALUE,...", usage: "join_timeout, or timeout where the back end is static: as --join-timeout", blank: true, set: setConf},
	{name: "local-addr", word: "HOST", usage: "this node's address for the others", set: func(o *runOptions, text string) (err error) {
		o.localAddr, err = parseHost(text)
		return err
	}},
	{name: "interface", word: "NETWORKS", usage: "networks to meet and talk on, as NCCL_SOCKET_IFNAME has them", own: true, set: func(o *runOptions, text string) error {
		o.network = text
		_, err := reach.ParseInterface(text)
		return err
	}},
	{name: "join-timeout", word: "TIME", usage: "how long nodes wait for each other (default 5m)", own: true, set: spanOf(time.Millisecond, func(o *runOptions) *time.Duration { return &o.joinLimit })},
}

// commandFlags say what a worker runs, and what it sees.
var commandFlags = []*runFlag{
	{name: "module", short: 'm', usage: "the word after the flags is a Python module", set: switchOf(func(o *runOptions) *bool { return &o.module })},
	{name: "no-python", usage: "the word after the flags is a program, as after --", set: switchOf(func(o *runOptions) *bool { return &o.noPython })},
	{name: "run-path", usage: "run the script by runpy.run_path", set: switchOf(func(o *runOptions) *bool { return &o.runPath })},
	{name: "use-env", own: true, usage: "workers find LOCAL_RANK in the environment: they do anyway (torch.distributed.launch's)", set: switchOf(func(o *runOptions) *bool { return &o.useEnv })},
	{name: "pass-local-rank", own: true, usage: "pass --local-rank=N to the script, as torch.distributed.launch does", set: switchOf(func(o *runOptions) *bool { return &o.passLocalRank })},
	{name: "role", word: "NAME", usage: "the workers' ROLE_NAME (default default)", set: textOf(func(o *runOptions) *string { return &o.role })},
	{name: "torch-store", own: true, off: true, usage: "serve PyTorch's store at MASTER_PORT (default: for Python without --master-port); =false: leave the port to rank 0", set: switchOf(func(o *runOptions) *bool { return &o.torchStore })},
	{name: "gpus", word: "WHICH", own: true, usage: "GPUs that a worker sees: all, one, or auto (default)", set: wordOf(func(o *runOptions) *string { return &o.gpus }, "all", "one", "auto")},
	{name: "virtual-local-rank", usage: "each worker sees one GPU and has LOCAL_RANK=0", set: switchOf(func(o *runOptions) *bool { return &o.virtualRank })},
	{name: "numa-binding", word: "HOW", usage: "bind each worker to cores near its GPU: node, socket, exclusive or core-complex", set: wordOf(func(o *runOptions) *string { return &o.numa }, "node", "socket", "exclusive", "core-complex")},
}

// outputFlags say what becomes of the workers' output.
var outputFlags = []*runFlag{
	{name: "log-dir", old: "logdir", word: "DIR", usage: "folder for the workers' logs and error files", set: pathOf(func(o *runOptions) *string { return &o.logDir })},
	{name: "redirects", short: 'r', word: "MODE", usage: "streams to files only: 0 none, 1 stdout, 2 stderr, 3 both; or LOCAL_RANK:MODE,...", set: modesOf(func(o *runOptions) *streams.Map { return &o.redirects })},
	{name: "tee", short: 't', word: "MODE", usage: "streams to files and console, as --redirects has it", set: modesOf(func(o *runOptions) *streams.Map { return &o.tees })},
	{name: "local-ranks-filter", word: "RANKS", usage: "local ranks whose output the console shows: 0,2,4-7", blank: true, set: rankListOf(func(o *runOptions) *[]int { return &o.localRanks })},
	{name: "ranks-filter", word: "RANKS", own: true, usage: "ranks of the world whose output the console shows", set: rankListOf(func(o *runOptions) *[]int { return &o.ranks })},
	{name: "duplicate-stdout-filters", word: "TEXT,...", usage: "lines with one of these go to one more file, of all ranks; ,, is a comma", blank: true, set: filtersOf(func(o *runOptions) *[]string { return &o.outFilters })},
	{name: "duplicate-stderr-filters", word: "TEXT,...", usage: "the same for stderr", blank: true, set: filtersOf(func(o *runOptions) *[]string { return &o.errFilters })},
	{name: "prefix", word: "TEXT", own: true, blank: true, usage: "begin each line on the console with it: ${host} ${rank} ${local_rank} ${role_name}", set: func(o *runOptions, text string) error {
		o.prefix = text
		return streams.ParsePrefix(text)
	}},
}

// endFlags say when workers end, and what follows.
var endFlags = []*runFlag{
	{name: "max-restarts", word: "N", usage: "how often workers are started again after a failure (default 0)", set: numberOf(0, mostRestarts, func(o *runOptions) *int { return &o.maxRestarts })},
	{name: "signals-to-handle", word: "NAME,...", usage: "signals that stop the run (default SIGTERM,SIGINT,SIGHUP,SIGQUIT)", set: func(o *runOptions, text string) (err error) {
		o.signals, err = parseSignals(text)
		return err
	}},
	{name: "shutdown-timeout", also: "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", word: "TIME", usage: "time for workers to end before they are killed (default 60s)", set: spanOf(0, func(o *runOptions) *time.Duration { return &o.grace })},
	{name: "hang", word: "TIME", own: true, usage: "workers without output, CPU time or heartbeat for so long have failed; 0: never (default: never)", set: spanOrNone(time.Second, func(o *runOptions) *time.Duration { return &o.hang })},
}

// mostRestarts is more than any job's.
const mostRestarts = 1 << 20

// idleFlags are torchrun's flags that change nothing here. They are checked, and it is said why.
var idleFlags = []*runFlag{
	{name: "monitor-interval", word: "SECONDS", usage: "accepted; an exit is seen at once", idle: "an exit is seen at once, not polled for", set: spanOf(0, func(o *runOptions) *time.Duration { return &o.ignoredSpan })},
	{name: "start-method", word: "HOW", usage: "accepted; each worker is a program of its own", idle: "it is about Python functions, and each worker is a program of its own", set: wordOf(func(o *runOptions) *string { return &o.startMethod }, "spawn", "fork", "forkserver")},
	{name: "event-log-handler", word: "NAME", usage: "accepted; events are in the run directory's ledger", idle: "events go to the run directory's ledger.jsonl", set: textOf(func(o *runOptions) *string { return &o.ignored })},
	{name: "logs-specs", word: "NAME", usage: "accepted; it names Python code", idle: "it names Python code; --log-dir, --tee and --redirects say what becomes of output", set: textOf(func(o *runOptions) *string { return &o.ignored })},
}

func modesOf(field func(*runOptions) *streams.Map) setter {
	return func(o *runOptions, text string) (err error) {
		*field(o), err = streams.ParseMap(text)
		return err
	}
}

func rankListOf(field func(*runOptions) *[]int) setter {
	return func(o *runOptions, text string) (err error) {
		*field(o), err = streams.ParseRanks(text)
		return err
	}
}

func filtersOf(field func(*runOptions) *[]string) setter {
	return func(o *runOptions, text string) error {
		*field(o) = streams.ParseFilters(text)
		return nil
	}
}
