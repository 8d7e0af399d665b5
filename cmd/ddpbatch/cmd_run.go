package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/mpi/launch"
)

func newRunCommand(e *env) *cli.Command {
	command := &cli.Command{
		Name:      "run",
		Usage:     "start and supervise this node's workers: the agent; torchrun's flags",
		ArgsUsage: "-- COMMAND... | SCRIPT.py ...",
		Description: example("srun --ntasks-per-node=1 ddpbatch run --nproc-per-node 4 train.py",
			"ddpbatch run --standalone --nproc-per-node 4 -- python3 train.py",
			"ddpbatch run --nnodes 2 --node-rank 0 --nproc-per-node 4 --master-addr n1 --master-port 29500 train.py"),
		SkipFlagParsing: true, // see runFlag
		Action: func(c *cli.Context) error {
			o, help, err := parseRun(c.Args().Slice(), e.lookup)
			switch {
			case err != nil:
				return err
			case help:
				return cli.ShowCommandHelp(c.Lineage()[1], c.Command.Name)
			}
			return runRun(c.Context, e, &o)
		},
	}
	for _, f := range runFlags {
		command.Flags = append(command.Flags, f.help())
	}
	return command
}

func runRun(ctx context.Context, e *env, o *runOptions) error {
	w, err := workersOf(e, o)
	if err != nil {
		return err
	}
	warn, err := w.warnSignal()
	if err != nil {
		return err
	}
	cfg := w.config(e)
	o.configure(&cfg)
	cfg.WarnSignal = warn
	ctx, warned, end := o.signalPlan(warn).listen(ctx, func(format string, args ...any) { o.note(e, format, args...) })
	defer end()
	cfg.Warn = warned
	if e.Release != nil {
		e.Release()
	}
	if cfg.Deadline, err = deadlineOf(e); err != nil {
		return err
	}
	pmi, err := openExchange(e)
	if err != nil {
		return err
	}
	if pmi != nil {
		defer pmi.Close()
	}
	alloc, err := place(ctx, e, o, w, &cfg)
	if err != nil {
		return err
	}
	misplaced(pmi, alloc, &cfg)
	if alloc == nil || alloc.Addresses == nil { // Slurm knows nothing of a job that is simulated
		cfg.FindDeadline = findDeadline(e)
		exchange(pmi, alloc, &cfg)
	}
	if cfg.Secret, err = secretOf(e, &cfg); err != nil {
		return err
	}
	if err := o.setOutput(e, w, &cfg); err != nil {
		return err
	}
	keepSmall(e)
	raiseLimits(e)
	log, endLog := queuedLog(e)
	defer endLog()
	cfg.Log = log
	defer bearClosedPipes()()
	verdict, err := launch.Run(ctx, cfg)
	switch {
	case cfg.Declines != nil:
		return cfg.Declines // with its own exit code
	case err != nil && verdict.Exit != 0:
		if !strings.Contains(err.Error(), verdict.Message) {
			err = fmt.Errorf("%s: %w", verdict.Message, err) // the verdict could not be written, say
		}
		return &codeError{code: verdict.Exit, err: err}
	case err != nil:
		return err
	case verdict.Exit == 0:
		return nil
	}
	// every agent ends with the run's one verdict. One of them says it, or each where they have no numbers: by hand, in terminals of their own
	if cfg.Index <= 0 {
		return &codeError{code: verdict.Exit, err: errors.New(cmp.Or(strings.TrimSpace(verdict.Report), verdict.Message))}
	}
	return &codeError{code: verdict.Exit}
}

// configure puts in what does not depend on where the agent is.
func (o *runOptions) configure(cfg *launch.AgentConfig) {
	cfg.Role, cfg.VirtualLocalRank = o.role, o.virtualRank
	cfg.GPUs = cmp.Or(o.gpus, cfg.GPUs)
	cfg.NUMA = cmp.Or(o.numa, cfg.NUMA)
	if o.has("max-restarts") {
		cfg.MaxRestarts, cfg.Policy.MaxRestarts = o.maxRestarts, o.maxRestarts
	}
	if o.has("shutdown-timeout") {
		cfg.Grace = max(1, o.grace) // 0 would be the default
	}
	if o.has("hang") {
		cfg.HangAfter = o.hang
	}
	conf := o.rdzv.conf
	cfg.JoinTimeout = cmp.Or(o.joinLimit, conf.join, conf.timeout)
	if conf.lastCall != nil {
		cfg.LastCall = max(1, *conf.lastCall) // as above
	}
}
