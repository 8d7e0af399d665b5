package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/simulate"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm/sim"
)

func newRehearseCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:      "rehearse",
		Usage:     "stop, requeue and resume a job here, and compare its end with that of a run that was never stopped",
		ArgsUsage: "JOB | -- COMMAND...",
		Description: example("ddpbatch rehearse job.toml --steps 100", "ddpbatch rehearse job.toml --fault term@step=100 --fault kill:rank=1@step=200",
			"ddpbatch rehearse --compare 'checkpoints/*.pt' -- python3 train.py"),
		Flags: append([]cli.Flag{
			setFlag(),
			&cli.StringSliceFlag{Name: "compare", Usage: "files of the run directory to compare, as a `PATTERN` (default: checkpoints, or what a command left in its checkpoint folder; may be repeated)"},
			&cli.Int64Flag{Name: "steps", Usage: fmt.Sprintf("end both runs of the built-in trainer after `N` steps (default: %d, or twice as many as the latest fault's)", defaultSteps)},
			&cli.BoolFlag{Name: "keep", Usage: "keep the two run directories"},
		}, pretendFlags()...),
		Action: func(c *cli.Context) error {
			p, err := pretendOf(c)
			if err != nil {
				return err
			}
			if p.Array != "" {
				return &usage.Error{Message: "--array: rehearse runs one job", Hint: "its elements differ by SLURM_ARRAY_TASK_ID alone: rehearse one of them"}
			}
			source, err := jobSource(e, c, "rehearse", nil)
			if err != nil {
				return err
			}
			source.sets = append(source.sets, p.Sets()...)
			r := &rehearsal{e: e, source: source, pretend: p, patterns: c.StringSlice("compare"), steps: c.Int64("steps")}
			if r.steps < 0 || c.IsSet("steps") && r.steps == 0 {
				return usage.Errorf("--steps is %d; it must be 1 or more", r.steps)
			}
			for _, pattern := range r.patterns {
				if _, err := filepath.Match(pattern, ""); err != nil || !filepath.IsLocal(pattern) {
					return usage.Errorf("--compare %q: write a pattern of files in the run directory, such as 'checkpoints/*.pt' (the command finds that folder in DDPBATCH_CHECKPOINT_DIR): what lies elsewhere is shared by both runs", pattern)
				}
			}
			return runRehearse(c.Context, r, c.Bool("keep"))
		},
	}
}

// rehearsal is one job run twice: as it is, and with something in its way.
type rehearsal struct {
	e        *env
	source   jobText
	pretend  simulate.Pretend
	patterns []string // of files to compare
	steps    int64    // after which both runs end; 0: as defaultSteps
	dir      string   // of both run directories
}

func runRehearse(ctx context.Context, r *rehearsal, keep bool) (err error) {
	quiet := *r.e
	quiet.Environ = slices.DeleteFunc(slices.Clone(r.e.Environ), func(s string) bool {
		return len(s) > len(deadlineName) && s[:len(deadlineName)+1] == deadlineName+"=" // nothing ends this but its own end
	})
	r.e = &quiet
	if err := r.shorten(); err != nil {
		return err
	}
	if r.dir, err = os.MkdirTemp("", "ddpbatch-rehearse-"); err != nil {
		return fmt.Errorf("make a folder for the two runs (TMPDIR says where): %w", err)
	}
	defer func() {
		if keep {
			fmt.Fprintf(r.e.Out, "kept: %s\n", r.dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(r.dir))
	}()
	straight, err := r.perform(ctx, "uninterrupted", nil)
	if err != nil {
		return err
	}
	if straight.verdict.Exit != 0 {
		keep = true
		return &exit.Error{Code: exitFailed, Err: fmt.Errorf("the job does not get through undisturbed, so there is nothing to compare with: %s", straight.verdict.Message)}
	}
	disturbed, err := r.disturb(ctx, straight)
	if err != nil {
		return err
	}
	keep = keep || disturbed.verdict.Exit != 0
	return r.judge(ctx, straight, disturbed)
}

// deadlineName is the variable that says when this process itself will end.
const deadlineName = "DDPBATCH_DEADLINE"

// tries is how often an earlier moment is tried where the default warning came too late.
const tries = 3

// disturb runs the job again with the faults that were asked for, or with one warning in the middle.
func (r *rehearsal) disturb(ctx context.Context, straight performance) (performance, error) {
	if len(r.pretend.Faults) > 0 {
		return r.perform(ctx, "interrupted", r.pretend.Faults)
	}
	for try := 1; ; try++ {
		name := "interrupted"
		if try > 1 {
			name = fmt.Sprintf("interrupted-%d", try)
		}
		again, err := r.perform(ctx, name, []sim.Fault{straight.warning(try)})
		if err != nil || try == tries || !again.late() {
			return again, err
		}
		fmt.Fprintln(r.e.Err, "ddpbatch: the warning came too late; once more, with an earlier one")
	}
}
