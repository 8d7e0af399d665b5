package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/builtin"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/resume"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/usage"
)

type resumeOptions struct {
	sets   []string
	rest   []string // words after --: for sbatch, or for simulate if the run is simulated
	wait   bool
	follow bool
}

func newResumeCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "resume",
		Usage:       "run a job again in its own run directory, from its newest checkpoint",
		ArgsUsage:   "RUN [-- SBATCH-OPTIONS | SIMULATE-FLAGS]",
		Description: example("ddpbatch resume 123", "ddpbatch resume runs/mnist-20261121-101500-1a2b3c4d --set train.epochs=20"),
		Flags: []cli.Flag{
			setFlag(), runDirFlag(),
			&cli.BoolFlag{Name: "wait", Usage: "wait for the job's end; exit with its code"},
			&cli.BoolFlag{Name: "follow", Usage: "show the job's output until its end; exit with its code"},
			jsonFlag(),
		},
		Action: withArg("run directory or job id", func(c *cli.Context, name string) error {
			if err := checkJSONAlone(c, "follow"); err != nil {
				return err
			}
			return e.replying(c.Bool("json"), func(e *env) error {
				run, err := e.viewer().FindToResume(runsFolder(e, c), name)
				if err != nil {
					return err
				}
				if err := checkOwn(e, run); err != nil {
					return err
				}
				_, rest, _ := splitDash(c.Args().Slice())
				return runResume(c.Context, e, run, resumeOptions{
					sets: c.StringSlice("set"), rest: rest, wait: c.Bool("wait"), follow: c.Bool("follow"),
				})
			})
		}),
	}
}

func runResume(ctx context.Context, e *env, run *rundir.Dir, o resumeOptions) error {
	if err := checkSets(e, o.sets); err != nil {
		return err
	}
	r := &resume.Resumer{
		Env: e.submitEnv(), View: e.viewer(), Sets: o.sets, Words: o.rest,
		Warn: func(warnings []jobfile.Fault) { warn(e, markEarlier(warnings, o.sets)) },
		Write: func(run *rundir.Dir, job *jobfile.Job, words []string) error {
			return writeScript(run, job, run.Spec().Template, words)
		},
	}
	kind := run.Spec().Kind
	if kind == "slurm" { // as submit does, and the other commands do not
		files := e.fileRemarks()
		r.Remarks = func(job *jobfile.Job) []jobfile.Remark { return append(job.DataRemarks(), files(job)...) }
	}
	if kind == "train" { // all ranks resume it at once, so it is not claimed
		return resumeTraining(ctx, e, r, run)
	}
	release, claim, err := r.Claim(ctx, run)
	if err != nil {
		return err
	}
	defer release()
	noteChanged(ctx, e, run)
	if done, err := checkResume(ctx, e, r, run); done || err != nil {
		return err
	}
	if kind == "simulate" {
		return resumeSimulated(ctx, e, r, run)
	}
	if err := checkSbatchWords(e, o.rest); err != nil {
		return err
	}
	others, err := r.AlsoChanges(ctx, run)
	if err != nil {
		return err
	}
	switch {
	case others == "":
	case strings.ContainsAny(others, ",-"):
		note(e, "--set is for the whole array: it also changes elements %s, which have not ended", others)
	default:
		note(e, "--set is for the whole array: it also changes element %s, which has not ended", others)
	}
	job, ids, err := r.Submit(ctx, run, claim)
	if err != nil {
		return err
	}
	release()
	e.indexRun(run)
	words := slices.Concat(r.ArrayWords(run, job), o.rest)
	pieces, _ := r.Pieces(run, job) // an error would have kept them from being submitted
	part := r.Part(run, job)
	run = run.Whole()
	code := ""
	if job.CodeDir != "" {
		code = "the copy made at submit, " + e.short(job.RanksDir(run.Path()))
	}
	if err := (accepted{run, job, ids, o.sets, words, pieces, part, code}).announce(ctx, e); err != nil {
		return err
	}
	return afterSubmit(ctx, e, run, ids[0], o.wait, o.follow)
}

// markEarlier marks the warnings about settings that are not among sets: they were given at submit, or to an earlier resume.
func markEarlier(warnings []jobfile.Fault, sets []string) []jobfile.Fault {
	marked := slices.Clone(warnings)
	for i := range marked {
		key, isSet := strings.CutPrefix(marked[i].File, "--set ")
		if isSet && !slices.ContainsFunc(sets, func(set string) bool { return jobfile.SetKey(set) == key }) {
			marked[i].File += " (given earlier)"
		}
	}
	return marked
}

// noteChanged says that the job file is not read again, if it has changed since the run was made. A simulated command has none.
func noteChanged(ctx context.Context, e *env, run *rundir.Dir) {
	source := run.Spec().Source
	info, err := os.Stat(source)
	if err != nil || !info.Mode().IsRegular() { // a pipe has nothing to compare any more
		return
	}
	now, err := jobfile.ReadText(ctx, source)
	then, thenErr := jobfile.ReadText(ctx, run.JobFilePath())
	if err == nil && thenErr == nil && !bytes.Equal(now, then) {
		note(e, "%s has changed since the run was made, and resume does not read it again: give the changes with --set, or start a new run",
			e.short(source))
	}
}

// checkResume reports whether the run has nothing left to do, and prints why.
func checkResume(ctx context.Context, e *env, r *resume.Resumer, run *rundir.Dir) (done bool, err error) {
	finished, err := r.Check(ctx, run)
	switch {
	case finished == "":
		return false, err
	case e.reply == nil:
		fmt.Fprintln(e.Out, finished)
		return true, err
	}
	job, err := jobfile.OfRun(run)
	if err != nil {
		return true, err
	}
	return true, printJSON(e, struct {
		jobReply
		Finished string `json:"finished"`
	}{jobReply{[]string{}, job.Name, run.Path(), requestOf(job, r.Sets, r.Words), e.reply.warnings(), run.Cluster()}, finished})
}

// resumeTraining continues a run of train in this process.
func resumeTraining(ctx context.Context, e *env, r *resume.Resumer, run *rundir.Dir) error {
	if done, err := checkResume(ctx, e, r, run); done || err != nil {
		return err
	}
	if len(r.Words) > 0 {
		return usage.Errorf("%q: a run of train is resumed by train, which does not take words after --", redact.Text(r.Words[0]))
	}
	if err := builtin.RefuseSingleton(e.lookup); err != nil { // before the settings are stored in the run
		return err
	}
	job, err := r.Job(ctx, run)
	if err != nil {
		return err
	}
	return e.inProcess(run, job, func(e *env) error { return e.rank(job, run).Work(ctx) })
}
