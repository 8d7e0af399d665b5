package main

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"ddpbatch/internal/attempt"
	"ddpbatch/internal/auth"
	"ddpbatch/internal/container"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobenv"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/lines"
	"ddpbatch/internal/placement"
	"ddpbatch/internal/proc"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/torchrun"
	"ddpbatch/internal/usage"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi/launch"
	streams "ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
	"ddpbatch/slurm/pmi2"
)

func newRunCommand(e *env) *cli.Command {
	command := &cli.Command{
		Name:      "run",
		Usage:     "start and supervise this node's workers: the agent; torchrun's flags",
		ArgsUsage: "-- COMMAND... | SCRIPT.py ...",
		Description: example("srun --ntasks-per-node=1 ddpbatch run --nproc-per-node 4 train.py",
			"ddpbatch run --standalone --nproc-per-node 4 -- python3 train.py",
			"ddpbatch run --nnodes 2 --node-rank 0 --nproc-per-node 4 --master-addr n1 --master-port 29500 train.py"),
		SkipFlagParsing: true, // see torchrun.Flag
		Action: func(c *cli.Context) error {
			o, help, err := torchrun.Parse(c.Args().Slice(), e.lookup)
			switch {
			case err != nil:
				return err
			case help:
				return cli.ShowCommandHelp(c.Lineage()[1], c.Command.Name)
			}
			return runRun(c.Context, e, &o)
		},
	}
	for _, f := range torchrun.Flags {
		command.Flags = append(command.Flags, flagHelp(f))
	}
	return command
}

// flagHelp returns a flag for the library's help.
func flagHelp(f *torchrun.Flag) cli.Flag {
	var short []string
	if f.Short != 0 {
		short = []string{string(f.Short)}
	}
	if f.IsSwitch() {
		return &cli.BoolFlag{Name: f.Name, Aliases: short, Usage: f.Usage}
	}
	return &valueHelp{&cli.StringFlag{Name: f.Name, Aliases: short, Usage: f.Usage}, f.Word}
}

// valueHelp is a flag whose help shows a word for its value.
type valueHelp struct {
	*cli.StringFlag
	word string
}

func (f *valueHelp) String() string {
	names, usage, _ := strings.Cut(f.StringFlag.String(), "\t")
	return strings.ReplaceAll(names, " value", " "+f.word) + "\t" + usage
}

func runRun(ctx context.Context, e *env, o *torchrun.Options) error {
	w, err := workersOf(e, o)
	if err != nil {
		return err
	}
	return runWorkers(ctx, e, o, w)
}

// runWorkers runs the agent of this node for the given workers.
func runWorkers(ctx context.Context, e *env, o *torchrun.Options, w *workers) error {
	warn := unix.SignalNum("SIG" + w.launch.WarnSignal) // the signal by which the batch script warns agents, and agents warn their workers
	if warn == 0 {
		return usage.Errorf("launch.warn_signal is %q, which is not a signal here", w.launch.WarnSignal)
	}
	cfg := w.config(e)
	cfg.WarnSignal = warn
	agent := placement.Agent{
		Options: o, PerNode: w.nproc, Job: w.launch, Builtin: w.builtin, Program: w.command, JobID: jobenv.JobID(e.lookup),
		Environ: e.Environ, Lookup: e.lookup, Note: func(format string, args ...any) { note(e, format, args...) },
	}
	agent.Configure(&cfg)
	ctx, warned, end := signalPlanOf(o, warn).listen(ctx, agent.Note)
	defer end()
	cfg.Warn = warned
	if e.Release != nil {
		e.Release()
	}
	deadline, err := jobenv.Deadline(e.lookup)
	if err != nil {
		return err
	}
	cfg.Deadline = deadline
	pmi, err := openExchange(e)
	if err != nil {
		return err
	}
	if pmi != nil {
		defer pmi.Close()
	}
	alloc, err := agent.Resolve(ctx, &cfg)
	if err != nil {
		return err
	}
	placement.Misplaced(pmi, alloc, &cfg)
	if alloc == nil || alloc.Addresses == nil { // Slurm does not know a simulated job
		if !w.brief {
			around := e.attemptEnv()
			cfg.FindDeadline, cfg.IsPreempted = around.FindDeadline(), around.IsPreempted()
			cfg.FindDrain, cfg.Spares = around.FindDrain(w.run), around.Spares(w.run)
		}
		placement.Exchange(pmi, alloc, &cfg)
	}
	if cfg.Secret, err = secretOf(e, &cfg); err != nil {
		return err
	}
	if err := setOutput(e, o, w, &cfg); err != nil {
		return err
	}
	limitGarbage(e)
	raiseLimits(e)
	queue, queued := lines.NewQueue(e.Err), *e
	defer queue.End()
	queued.Err = queue
	cfg.Log = queued.log()
	defer tolerateClosedPipes()()
	defer expose(ctx, &queued, w, &cfg)()
	verdict, err := launch.Run(ctx, cfg)
	switch {
	case cfg.Reject != nil:
		return cfg.Reject // with its own exit code
	case err != nil && verdict.Exit != 0:
		if !strings.Contains(err.Error(), verdict.Message) {
			err = fmt.Errorf("%s: %w", verdict.Message, err) // the verdict could not be written, for example
		}
		return &exit.Error{Code: verdict.Exit, Err: err}
	case err != nil:
		return err
	case verdict.Exit == 0:
		return nil
	}
	// All agents end with the same verdict of the run. One of them prints it, or each agent if they have no numbers: they were then started
	// by hand, in their own terminals.
	if cfg.Index <= 0 {
		return &exit.Error{Code: verdict.Exit, Err: errors.New(cmp.Or(strings.TrimSpace(verdict.Report), verdict.Message))}
	}
	return &exit.Error{Code: verdict.Exit}
}

// openExchange takes over the connection by which Slurm lets the tasks of a step exchange short messages (srun --mpi=pmi2). It returns nil
// if there is none. Even an agent that is alone takes it over, so that workers do not inherit it.
func openExchange(e *env) (*pmi2.Client, error) {
	client, err := pmi2.Open(e.lookup)
	if errors.Is(err, pmi2.ErrNone) {
		return nil, nil
	}
	return client, err
}

// prefixVariable is torchrun's variable for --prefix.
const prefixVariable = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"

// setOutput configures the workers' output.
func setOutput(e *env, o *torchrun.Options, w *workers, cfg *launch.AgentConfig) error {
	cfg.Output = o.Output
	cfg.Output.Prefix = cmp.Or(o.Output.Prefix, e.get(prefixVariable))
	if cfg.Output.Prefix == "" && !o.Has("prefix") && !w.builtin { // the built-in trainer's lines have the rank themselves
		cfg.Output.Prefix, cfg.Output.PrefixSeveral = w.launch.Prefix, true
	}
	if err := streams.ParsePrefix(cfg.Output.Prefix); err != nil {
		return usage.Errorf("%s: %v", prefixVariable, err)
	}
	if o.LogDir != "" {
		cfg.LogDir = e.abs(o.LogDir)
	}
	if cfg.LogDir != "" || cfg.RunDir != nil || !o.WantsFiles() {
		return nil
	}
	// like torchrun, create a directory if files are requested and none is named
	folder, err := os.MkdirTemp("", "ddpbatch-logs-")
	if err != nil {
		return fmt.Errorf("make a folder for the workers' logs (--log-dir names another): %w", err)
	}
	cfg.LogDir = folder
	note(e, "the workers' logs go to %s on %s; --log-dir names another folder", folder, cfg.Host)
	return nil
}

// secretOf returns the secret that the agents of a run prove to each other. A single agent proves it only to its workers, and uses a new
// one. Agents that can exchange messages without it get one from agent 0.
func secretOf(e *env, cfg *launch.AgentConfig) (auth.Secret, error) {
	switch given := e.get("DDPBATCH_SECRET") != ""; {
	case !given && cfg.Count == 1:
		return auth.NewSecret(), nil
	case !given && cfg.Exchange != nil:
		return auth.Secret{}, nil
	}
	return runSecret(e, cfg.RunID)
}

// runSecret returns the secret that the processes of a run share: the batch script's, or, if there is none, one derived from a key file
// that all nodes see and from what identifies this run.
func runSecret(e *env, runID string) (auth.Secret, error) {
	if text := e.get("DDPBATCH_SECRET"); text != "" {
		secret, err := auth.ParseSecret(text)
		if err != nil {
			return auth.Secret{}, usage.Errorf("read DDPBATCH_SECRET: %v", err)
		}
		return secret, nil
	}
	path, err := auth.KeyPath(e.lookup)
	if err != nil {
		return auth.Secret{}, usage.Errorf("%v", err)
	}
	return auth.RunSecret(path, runID)
}

// runIDOf returns the ID of the run that a process belongs to, as mpi.InitEnv determines it.
func runIDOf(e *env) string {
	return cmp.Or(e.get("DDPBATCH_RUN_ID"), e.get("TORCHELASTIC_RUN_ID"), "none")
}

// agentGC replaces GOGC's 100. Go begins to collect garbage at 4 MB x GOGC / 100 (runtime/mgcpacer.go, heapMinimum). An agent reaches that
// in minutes while it supervises its workers, but needs only a quarter of it. With 100 it would stay above 20 MB resident for days, beside
// workers that need the memory.
const agentGC = 50

// limitGarbage makes this process keep less garbage, unless GOGC is set.
func limitGarbage(e *env) {
	if e.get("GOGC") == "" {
		debug.SetGCPercent(agentGC)
	}
}

// raiseLimits gives the workers all that the administrator permits. Otherwise the limits of the submitting machine apply (sbatch(1),
// --propagate), and 1,024 open files are few for a data loader.
func raiseLimits(e *env) {
	warnings, err := proc.RaiseLimits()
	// too little locked memory matters only for InfiniBand
	if adapters, _ := os.ReadDir("/sys/class/infiniband"); len(adapters) > 0 {
		for _, text := range warnings {
			e.log().Warn(text)
		}
	}
	if err != nil {
		e.log().Warn("limits could not be raised", "error", err)
	}
}

// note tells the user something worth knowing that is not an error.
func note(e *env, format string, args ...any) {
	fmt.Fprintf(e.Err, "ddpbatch: %s\n", text.CleanLines(fmt.Sprintf(format, args...)))
}

// workers is what an agent starts, from the command line or from the run directory that the batch script names.
type workers struct {
	command   []string
	builtin   bool
	dir       string
	env       map[string]string
	nproc     launch.Nproc
	launch    launch.Config
	policy    recovery.Policy
	run       *rundir.Dir       // nil if there is none
	container *launch.Container // nil if there is none
	rdma      bool              // the workers' messages must use RDMA
	brief     bool              // the workers check their node and end: it is not checked before, and nobody asks when the job ends
	attempt   int
	version   string
}

func workersOf(e *env, o *torchrun.Options) (w *workers, err error) {
	w = &workers{dir: e.Dir, launch: launch.DefaultConfig(), version: version}
	w.launch.Hang = 0 // not requested; an unknown command may sleep for any time
	if w.command, err = o.Argv(e.get("PYTHON_EXEC")); err != nil {
		return nil, err
	}
	if err := refuseProgram(e, o.PythonScript()); err != nil {
		return nil, err
	}
	path := e.get("DDPBATCH_RUN_DIR")
	switch {
	case w.command == nil && path == "":
		return nil, &usage.Error{Message: "run needs a command", Hint: "write it after --: ddpbatch run -- python3 train.py"}
	case w.command == nil:
		if err := w.fromRun(e, path); err != nil {
			return nil, err
		}
	}
	w.nproc = o.NprocOf(w.launch.NprocPerNode)
	return w, nil
}

// refuseProgram returns an error if Python would be given a program in the place of a script, because -- was left out. Python would only
// find a syntax error in it. With a PYTHON_EXEC that may be right.
func refuseProgram(e *env, script string) error {
	if script == "" || e.get("PYTHON_EXEC") != "" {
		return nil
	}
	f, _, err := vfs.OpenRegular(e.abs(script))
	if err != nil {
		return nil // Python reports it
	}
	defer f.Close()
	magic := make([]byte, len(elf.ELFMAG))
	if _, err := io.ReadFull(f, magic); err != nil || string(magic) != elf.ELFMAG {
		return nil
	}
	program := script
	if !strings.Contains(program, "/") {
		program = "./" + program // a command without a slash is looked up in PATH
	}
	return &usage.Error{Message: fmt.Sprintf("%q is a program, not a Python script", script),
		Hint: "write -- before it: ddpbatch run ... -- " + slurm.ShellJoin([]string{program})}
}

// fromRun takes everything from the run directory's spec.
func (w *workers) fromRun(e *env, path string) error {
	run, err := rundir.OpenOwn(path)
	if err != nil {
		return err
	}
	job, err := jobfile.OfRun(run)
	if err != nil {
		return err
	}
	if w.attempt, err = strconv.Atoi(e.get("DDPBATCH_ATTEMPT")); err != nil || w.attempt < 1 {
		return usage.Errorf("DDPBATCH_RUN_DIR is set, but DDPBATCH_ATTEMPT is %q: the batch script sets both", e.get("DDPBATCH_ATTEMPT"))
	}
	w.run, w.version = run, run.Spec().SHA256
	w.dir, w.env, w.launch, w.policy = job.RanksDir(run.Whole().Path()), job.WorkerEnv(), job.Launch, job.Policy()
	w.command, w.builtin = job.Launch.Command, job.Builtin()
	w.rdma = w.builtin && job.MPI.Transport == "ucx"
	if w.builtin {
		w.command = []string{run.Binary(), "train"}
	}
	if job.Container.Runtime != "" {
		w.container = containerOf(e, job, run)
	}
	return nil
}

// runName returns the name of a run's directory, with the number if it is an element of an array.
func runName(run *rundir.Dir) string {
	name := filepath.Base(run.Whole().Path())
	if rest, err := filepath.Rel(run.Whole().Path(), run.Path()); err == nil && rest != "." {
		name += "-" + filepath.Base(rest)
	}
	return name
}

// containerOf returns the container of a job's ranks.
func containerOf(e *env, job *jobfile.Job, run *rundir.Dir) *launch.Container {
	if job.Checkpoint.Local != "" {
		_ = os.MkdirAll(job.Checkpoint.Local, 0o700) // ranks outside create it; if it is missing, the agent reports it
	}
	k := &launch.Container{
		Config: job.Container, Run: runName(run), Outer: withoutPMI(e.Environ), Given: slices.Sorted(maps.Keys(job.WorkerEnv())),
	}
	k.Binds, k.Key = containerBinds(e, job, run.Whole().Path())
	return k
}

// containerBinds returns what the ranks of the run in runDir see of their node besides the job's mounts: the run directory, their working
// directory, checkpoint.local, and the user's key file if there is one, whose path it returns as well.
func containerBinds(e *env, job *jobfile.Job, runDir string) (binds []container.Bind, key string) {
	binds = container.Same(runDir, job.RanksDir(runDir), job.Checkpoint.Local)
	if path, err := auth.KeyPath(e.lookup); err == nil {
		if _, err := os.Stat(path); err == nil {
			return append(binds, container.Bind{Source: path, Target: path, ReadOnly: true}), path
		}
	}
	return binds, ""
}

// config returns the agent's configuration, without its place among the others.
func (w *workers) config(e *env) launch.AgentConfig {
	cfg := launch.AgentConfig{
		Identity: launch.Identity{Attempt: w.attempt, Version: w.version, RunDir: w.run},
		Workers: launch.Workers{
			MaxRestarts: w.launch.MaxRestarts, Command: w.command, Env: withoutPMI(e.Environ), Dir: w.dir, Builtin: w.builtin, Sweep: true,
		},
		Policy: w.policy, Log: e.log(),
		Admission:  launch.Admission{MinCount: w.launch.MinNodes},
		Limits:     launch.Limits{Grace: w.launch.Grace, TermGrace: attempt.TermGrace(e.lookup), HangAfter: w.launch.Hang},
		Devices:    launch.Devices{GPUs: w.launch.GPUs, NUMA: w.launch.NUMA},
		NodeChecks: launch.NodeChecks{Checks: w.launch.Check, Machine: !w.brief, RDMA: w.rdma},
		Streams:    launch.Streams{Stdout: unchecked(e.Out), Stderr: e.Err},
	}
	cfg.Host, cfg.Container = e.Hostname, w.container
	for _, name := range slices.Sorted(maps.Keys(w.env)) {
		cfg.Env = append(cfg.Env[:len(cfg.Env):len(cfg.Env)], name+"="+w.env[name])
	}
	if w.container != nil && w.container.Key != "" { // its usual place is below the home directory, which differs inside
		cfg.Env = append(cfg.Env, "DDPBATCH_SECRET_FILE="+w.container.Key)
	}
	return cfg
}

// withoutPMI returns an environment without Slurm's description of a connection that only the agent has.
func withoutPMI(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return strings.HasPrefix(entry, "PMI_") })
}
