package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobenv"
	"ddpbatch/internal/lines"
	"ddpbatch/internal/placement"
	"ddpbatch/internal/proc"
	"ddpbatch/internal/text"
	"ddpbatch/internal/torchrun"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi/launch"
	streams "ddpbatch/mpi/launch/output"
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
