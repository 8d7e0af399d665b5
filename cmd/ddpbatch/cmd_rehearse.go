package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rehearse"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/simulate"
	"ddpbatch/internal/usage"
)

func newRehearseCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:      "rehearse",
		Usage:     "stop, requeue and resume a job here, and compare the result with that of an uninterrupted run",
		ArgsUsage: "JOB | -- COMMAND...",
		Description: example("ddpbatch rehearse job.toml --steps 100",
			"ddpbatch rehearse job.toml --fault term@step=100 --fault kill:rank=1@step=200",
			"ddpbatch rehearse --compare 'checkpoints/*.pt' -- python3 train.py"),
		Flags: append([]cli.Flag{
			setFlag(),
			&cli.StringSliceFlag{Name: "compare",
				Usage: "files of the run directory to compare, as a `PATTERN` (default: checkpoints, or a command's files in its " +
					"checkpoint folder; may be repeated)"},
			atolFlag(), rtolFlag(),
			&cli.Int64Flag{Name: "steps",
				Usage: fmt.Sprintf("end both runs of the built-in trainer after `N` steps (default: %d, or twice as many as the latest "+
					"fault's)", rehearse.DefaultSteps)},
			&cli.BoolFlag{Name: "keep", Usage: "keep the two run directories"},
			jsonFlag(),
		}, pretendFlags()...),
		Action: func(c *cli.Context) error {
			return e.replying(c.Bool("json"), func(e *env) error {
				p, err := pretendOf(c, tryHelp(c), false)
				if err != nil {
					return err
				}
				if p.Array != "" {
					return &usage.Error{Message: "--array: rehearse runs one job",
						Hint: "its elements differ only in SLURM_ARRAY_TASK_ID: rehearse one of them"}
				}
				source, err := jobSource(e, c, "rehearse", nil)
				if err != nil {
					return err
				}
				source.sets = append(source.sets, p.Sets()...)
				r := &rehearse.Rehearsal{Pretend: p, Sets: source.sets, Patterns: c.StringSlice("compare"), Steps: c.Int64("steps")}
				if r.Within, err = toleranceOf(c); err != nil {
					return err
				}
				if r.Steps < 0 || c.IsSet("steps") && r.Steps == 0 {
					return usage.Errorf("--steps is %d; it must be 1 or more", r.Steps)
				}
				for _, pattern := range r.Patterns {
					if _, err := filepath.Match(pattern, ""); err != nil || !filepath.IsLocal(pattern) {
						return usage.Errorf("--compare %q: give a pattern of files in the run directory, such as 'checkpoints/*.pt' "+
							"(that folder is the command's DDPBATCH_CHECKPOINT_DIR): both runs share files elsewhere",
							pattern)
					}
				}
				return runRehearse(c.Context, e, r, source, c.Bool("keep"))
			})
		},
	}
}

// deadlineName is the variable with the time at which this process itself will end.
const deadlineName = "DDPBATCH_DEADLINE"

func runRehearse(ctx context.Context, e *env, r *rehearse.Rehearsal, source jobText, keep bool) (err error) {
	quiet := *e
	quiet.Environ = slices.DeleteFunc(slices.Clone(e.Environ), func(entry string) bool {
		return strings.HasPrefix(entry, deadlineName+"=") // only its own end ends a rehearsal
	})
	e = &quiet
	console := quiet
	if e.reply != nil { // progress is for a waiting user, and not a warning
		console.Out, console.Err = e.reply.stderr, e.reply.stderr
	}
	r.Env = console.simulateEnv()
	r.Parse = func(sets []string) (*jobfile.Job, error) {
		job, _, err := parsePretend(e, jobText{source.path, source.text, sets})
		return job, err
	}
	r.NewRun = func(sets []string, p simulate.Pretend) (*rundir.Dir, *jobfile.Job, error) {
		return newSimulation(ctx, e, jobText{source.path, source.text, sets}, p)
	}
	if job, err := r.Parse(r.Sets); err == nil { // otherwise the first run reports the error
		if err := refuseSweep(job, "rehearse"); err != nil {
			return err
		}
	}
	if err := r.Shorten(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ddpbatch-rehearse-")
	if err != nil {
		return fmt.Errorf("make a folder for the two runs (TMPDIR says where): %w", err)
	}
	defer func() {
		switch {
		case !keep:
			err = errors.Join(err, os.RemoveAll(dir))
		case e.reply == nil:
			fmt.Fprintf(e.Out, "kept: %s\n", dir)
		}
	}()
	straight, disturbed, err := r.Run(ctx, dir)
	if err != nil {
		return err
	}
	if straight.Verdict.Exit != 0 {
		keep = true
		return &exit.Error{Code: exit.Failed,
			Err: fmt.Errorf("the job fails even undisturbed, so there is nothing to compare with: %s", straight.Verdict.Message)}
	}
	keep = keep || disturbed.Verdict.Exit != 0
	if e.reply == nil {
		if err := printOutcomes(e, r.Steps, straight, disturbed); err != nil {
			return err
		}
	}
	answer, line, differ, err := r.Judge(ctx, straight, disturbed)
	if err != nil {
		return err
	}
	if e.reply != nil {
		done := rehearseReply{
			Name: straight.Job.Name, Asked: requestOf(straight.Job, source.sets, nil), Answer: answerWords[answer], Message: line,
			Differ: append([]string{}, differ...), Runs: []rehearsedRun{rehearsed(straight, keep), rehearsed(disturbed, keep)},
			Warnings: e.reply.warnings(),
		}
		if err := printJSON(e, done); err != nil {
			return err
		}
	} else {
		for _, line := range append(differ, line) {
			fmt.Fprintln(e.Out, line)
		}
	}
	switch answer {
	case rehearse.Different:
		return &exit.Error{Code: exit.Failed}
	case rehearse.Unknown:
		return &exit.Error{Code: exitPartly}
	}
	return nil
}

// printOutcomes prints how the two runs ended. steps is the step at which both were to end; 0: the job's own.
func printOutcomes(e *env, steps int64, straight, disturbed rehearse.Outcome) error {
	if steps > 0 && straight.Steps >= steps {
		fmt.Fprintf(e.Out, "both runs end at step %d, although the job itself may have more (--steps)\n", steps)
	}
	t := newTable(e, "RUN", "ATTEMPTS", "STEP", "TIME", "END")
	for _, p := range []rehearse.Outcome{straight, disturbed} {
		step := "-"
		if p.Verdict.Step > 0 {
			step = strconv.FormatInt(p.Verdict.Step, 10)
		}
		t.Row(p.Name, strconv.Itoa(p.Attempts), step, p.Took.Round(time.Millisecond).String(), p.Verdict.Message)
	}
	return t.Flush()
}

// rehearseReply is what a rehearsal found, in JSON (docs/cli/json.md).
type rehearseReply struct {
	Name     string         `json:"name"`
	Asked    request        `json:"asked"`
	Answer   string         `json:"answer"` // "same", "different" or "unknown"
	Message  string         `json:"message"`
	Differ   []string       `json:"differ"` // the differences, one text each
	Runs     []rehearsedRun `json:"runs"`
	Warnings []string       `json:"warnings"`
}

var answerWords = map[rehearse.Answer]string{rehearse.Same: "same", rehearse.Different: "different", rehearse.Unknown: "unknown"}

// rehearsedRun is one of the two runs.
type rehearsedRun struct {
	Name     string  `json:"name"`
	RunDir   string  `json:"run_dir"` // empty if it is not kept
	Attempts int     `json:"attempts"`
	Step     int64   `json:"step"`
	Seconds  float64 `json:"seconds"`
	Exit     int     `json:"exit"`
	Message  string  `json:"message"`
}

func rehearsed(o rehearse.Outcome, kept bool) rehearsedRun {
	run := rehearsedRun{
		Name: o.Name, Attempts: o.Attempts, Step: o.Verdict.Step, Seconds: o.Took.Seconds(), Exit: o.Verdict.Exit,
		Message: o.Verdict.Message,
	}
	if kept {
		run.RunDir = o.Run.Path()
	}
	return run
}
