package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

type submitOptions struct {
	path      string
	sets      []string
	sbatch    []string // words after --
	testOnly  bool
	dryRun    bool
	parsable  bool
	wait      bool
	follow    bool
	skipCheck bool
}

func newSubmitCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "submit",
		Usage:       "render a job's batch script and submit it; prints the job id",
		ArgsUsage:   "JOB [-- SBATCH-OPTIONS]",
		Description: example("ddpbatch submit job.toml", "ddpbatch submit job.toml --set slurm.nodes=4 --follow -- --qos=high"),
		Flags: []cli.Flag{
			setFlag(), templateFlag(),
			&cli.BoolFlag{Name: "test-only", Usage: "ask Slurm whether and when it would run; submit nothing"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print the script and the sbatch command; submit nothing"},
			&cli.BoolFlag{Name: "parsable", Usage: "print the job id and nothing else"},
			&cli.BoolFlag{Name: "wait", Usage: "wait for the job's end; exit with its code"},
			&cli.BoolFlag{Name: "follow", Usage: "show the job's output until its end; exit with its code"},
			&cli.BoolFlag{Name: "skip-data-check", Usage: "submit even where this machine does not see the data files"},
		},
		Action: withArg("job file", func(c *cli.Context, path string) error {
			_, rest, _ := splitDash(c.Args().Slice())
			if err := checkSbatchWords(e, rest); err != nil {
				return err
			}
			return runSubmit(c.Context, e, submitOptions{
				path: e.abs(path), sets: withTemplate(e, c, c.StringSlice("set")), sbatch: rest,
				testOnly: c.Bool("test-only"), dryRun: c.Bool("dry-run"), parsable: c.Bool("parsable"),
				wait: c.Bool("wait"), follow: c.Bool("follow"), skipCheck: c.Bool("skip-data-check"),
			})
		}),
	}
}

func runSubmit(ctx context.Context, e *env, o submitOptions) error {
	job, text, err := loadJob(ctx, e, o.path, o.sets)
	if err != nil {
		return err
	}
	if !o.skipCheck {
		if err := job.CheckFiles(); err != nil {
			return fmt.Errorf("%w; or pass --skip-data-check if only the nodes see it", err)
		}
	}
	template, err := readTemplate(ctx, job)
	if err != nil {
		return err
	}
	if o.testOnly || o.dryRun {
		return trySubmit(ctx, e, job, template, o)
	}
	if err := checkArraySize(ctx, e, job); err != nil {
		return err
	}
	run, err := newRun(e, "slurm", job, o.path, text, o.sets)
	if err != nil {
		return err
	}
	release, claim, err := e.submitEnv().Claim(run, rundir.EventSubmit)
	switch {
	case errors.As(err, new(*usage.Error)):
		return err // somebody has found the run, and is resuming it
	case err != nil:
		return errors.Join(err, run.Discard())
	}
	defer release()
	if err := recordTemplate(run, template); err != nil {
		return errors.Join(err, run.Discard())
	}
	if err := writeScript(run, job, template, o.sbatch); err != nil {
		return errors.Join(err, run.Discard())
	}
	id, err := e.submitEnv().Submit(ctx, run, claim, o.sbatch, rundir.Event{Detail: rundir.EventSubmit})
	switch {
	case errors.Is(err, rundir.ErrClaimLost):
		return err // the run is another command's to submit: nothing of it is undone
	case err != nil && submission.NotSubmitted(err):
		return errors.Join(err, run.Discard())
	case err != nil:
		return fmt.Errorf("%w; the run directory is kept, in case Slurm has taken the job all the same: ddpbatch status %s",
			err, slurm.ShellQuote(run.Path()))
	}
	release()
	if o.parsable {
		fmt.Fprintln(e.Out, id)
	} else {
		fmt.Fprintf(e.Out, "submitted job %s: %s\nrun directory: %s\n", id, job.Summary(), e.short(run.Path()))
	}
	warnStuck(ctx, e, id)
	return afterSubmit(ctx, e, run, id, o.wait, o.follow)
}

// checkArraySize refuses a sweep that has more elements than the cluster takes of an array. Where Slurm does not say how many, sbatch
// decides.
func checkArraySize(ctx context.Context, e *env, job *jobfile.Job) error {
	if job.Sweep == nil {
		return nil
	}
	config, err := e.submitEnv().Slurm.ClusterConfig(ctx)
	if n, most := job.Sweep.Len(), config.MaxArraySize; err == nil && most >= 0 && n > most {
		return usage.Errorf("the sweep has %d elements, and this cluster takes arrays of at most %d (MaxArraySize in slurm.conf): "+
			"write fewer values, or submit the sweep in parts", n, most)
	}
	return nil
}

// warnStuck tells of a job that Slurm has taken and that does not start as it is. That Slurm cannot be asked just now is no fault of the
// submission's.
func warnStuck(ctx context.Context, e *env, id string) {
	jobs, err := e.viewer().Jobs(ctx, []string{id})
	if err != nil {
		return
	}
	for _, job := range jobs {
		if job.Stuck() {
			fmt.Fprintf(e.Err, "ddpbatch: job %s does not start as it is: Slurm says %s; see JOB REASON CODES in squeue(1); "+
				"to take it back: ddpbatch cancel %s\n", id, job.Reason, id)
			return
		}
	}
}

// checkSbatchWords checks the words after --, which go to sbatch.
func checkSbatchWords(e *env, words []string) error {
	if len(words) == 0 {
		return nil
	}
	for _, word := range words {
		if err := slurm.CheckExtra(word); err != nil {
			return usage.Errorf("%v", err)
		}
	}
	d, err := readDefaults(e)
	if err != nil {
		return err
	}
	return d.CheckWords(words)
}

// recordTemplate keeps a script template of the user's own with the run, for its resumes.
func recordTemplate(run *rundir.Dir, template string) error {
	if template == "" {
		return nil
	}
	spec := run.Spec()
	spec.Template = template
	return run.WriteSpec(spec)
}

// writeScript renders a job's batch script into its run directory.
func writeScript(run *rundir.Dir, job *jobfile.Job, template string, words []string) error {
	script, err := renderScript(job, run.Path(), template, words)
	if err != nil {
		return err
	}
	return run.WriteScript(script)
}

// trySubmit shows what submit would do.
func trySubmit(ctx context.Context, e *env, job *jobfile.Job, template string, o submitOptions) error {
	script, err := renderScript(job, unnamedRun(job), template, o.sbatch)
	if err != nil {
		return err
	}
	if o.dryRun {
		printScript(e, script)
		words := append(append([]string{"sbatch", "--parsable"}, o.sbatch...), "script.sh")
		fmt.Fprintf(e.Err, "would run: %s\n", redact.Text(slurm.ShellJoin(words)))
		return nil
	}
	dir, err := os.MkdirTemp("", "ddpbatch-test-only-")
	if err != nil {
		return fmt.Errorf("make a folder for the script: %w", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "script.sh")
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		return fmt.Errorf("write the script: %w", err)
	}
	answer, err := e.submitEnv().Slurm.TestOnly(ctx, path, o.sbatch)
	if err != nil {
		return err
	}
	fmt.Fprintln(e.Out, answer)
	return nil
}

// submitEnv is what package submission knows of this process. Slurm's commands get the environment that jobs should inherit.
func (e *env) submitEnv() submission.Env {
	kept, dropped := slurm.Scrub(e.Environ)
	return submission.Env{Hostname: e.Hostname, Now: e.Now, Log: e.log(), Slurm: &slurm.Client{Environ: kept}, Dropped: dropped}
}
