package resume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
	"ddpbatch/trainer"
)

// override is the run's job, with sets over what is kept of those that it was started with; the
// spec is rewritten to hold them, and simulate's flags. It also returns what the job file asks for in vain.
func override(ctx context.Context, run *rundir.Dir, kept, sets, pretend []string) (*jobfile.Job, []jobfile.Fault, error) {
	spec := run.Spec()
	if len(sets) == 0 && slices.Equal(kept, spec.Sets) && slices.Equal(pretend, spec.Pretend) {
		job, err := jobfile.OfRun(run)
		if err == nil {
			err = job.CheckCode(run.Whole().Path())
		}
		return job, nil, err
	}
	anew, elements, err := anewFrom(run, sets)
	if err != nil {
		return nil, nil, err
	}
	more, err := moreFrom(run, sets)
	if err != nil {
		return nil, nil, err
	}
	if slices.ContainsFunc(sets, func(set string) bool { return jobfile.SetKey(set) == "script_template" }) {
		return nil, nil, usage.Errorf("script_template cannot be changed: a run keeps the script template that it was submitted with")
	}
	defaults, err := jobfile.RecordedDefaults(spec.Defaults)
	if err != nil {
		return nil, nil, fmt.Errorf("read the defaults that the run was submitted with: %w", err)
	}
	text, err := jobfile.ReadText(ctx, run.JobFilePath())
	if err != nil {
		return nil, nil, fmt.Errorf("read the run's job file: %w", err)
	}
	all := slices.Concat(kept, sets)
	job, warnings, err := defaults.Parse(run.JobFilePath(), filepath.Dir(spec.Source), text, all)
	if err != nil {
		return nil, warnings, err
	}
	before, err := jobfile.OfRun(run)
	if err == nil {
		err = job.KeepCode(before, sets)
	}
	if err == nil {
		err = job.CheckCode(run.Whole().Path())
	}
	if err != nil {
		return nil, warnings, err
	}
	fresh, err := job.Spec(spec)
	if err != nil {
		return nil, warnings, err
	}
	changed := rundir.Overridden{
		Sets: all, Anew: anew, AnewElements: elements, MoreElements: more,
		Pretend: pretend, Clusters: fresh.Clusters, WorkDir: fresh.WorkDir, Nodes: fresh.Nodes, Job: fresh.Job,
	}
	if index, ok := run.Index(); ok {
		changed.Element = &index
	}
	if err := run.WriteSpec(spec.Override(changed)); err != nil {
		return nil, warnings, err
	}
	job, err = job.Of(run)
	return job, warnings, err
}

// checkSwept refuses to change what the elements of a sweep are: by their numbers they have begun, and are resumed.
func checkSwept(sets []string) error {
	for _, set := range sets {
		if key := jobfile.SetKey(set); key == "sweep" || strings.HasPrefix(key, "sweep.") && key != "sweep.parallel" {
			return &usage.Error{
				Message: "--set " + key + ": the elements of a sweep are what they were when it was submitted", Hint: "submit another one",
			}
		}
	}
	return nil
}

// asksAnew reports whether sets have a word about checkpoint.resume.
func asksAnew(sets []string) bool {
	return slices.ContainsFunc(sets, func(set string) bool {
		key := jobfile.SetKey(set)
		return key == "checkpoint.resume" || key == "checkpoint"
	})
}

// anewFrom is the attempt from which on the run begins anew where checkpoint.resume says "never", and that of each element of an array: the
// next one, where that is asked for now, or else what it was. So it holds once each time that it is asked for: of an array once for each
// element, as they count their attempts themselves; and where run is one element, for that alone.
func anewFrom(run *rundir.Dir, sets []string) (anew int, elements map[int]int, err error) {
	anew, elements = run.Spec().Anew, maps.Clone(run.Spec().AnewElements)
	if !asksAnew(sets) {
		return anew, elements, nil
	}
	asked := []*rundir.Dir{run}
	if _, ok := run.Index(); !ok {
		newest, err := run.NewestAttempt()
		if err != nil {
			return 0, nil, err
		}
		anew = newest + 1
		if asked, err = run.Elements(); err != nil {
			return 0, nil, err
		}
	}
	if elements == nil {
		elements = map[int]int{}
	}
	for _, element := range asked {
		newest, err := element.NewestAttempt()
		if err != nil {
			return 0, nil, err
		}
		index, _ := element.Index()
		elements[index] = newest + 1
	}
	return anew, elements, nil
}

// moreFrom tells from which attempt on each element of an array has run with what sets give even finished ones to do: the job may end, or
// be cancelled, before all of them have begun.
func moreFrom(run *rundir.Dir, sets []string) (map[int]int, error) {
	more := maps.Clone(run.Spec().MoreElements)
	if _, isElement := run.Index(); isElement || !moreToDo(run, sets) {
		return more, nil
	}
	elements, err := run.Elements()
	for _, element := range elements {
		newest, err := element.NewestAttempt()
		if err != nil {
			return nil, err
		}
		if more == nil {
			more = map[int]int{}
		}
		index, _ := element.Index()
		more[index] = newest + 1
	}
	return more, err
}

// checkFits compares a job of the built-in trainer with the newest checkpoint of a run, and of each element of an array. What cannot be
// read here, or is on a node's own disk, the nodes compare.
func checkFits(ctx context.Context, run *rundir.Dir, job *jobfile.Job, log *slog.Logger) error {
	if !job.Builtin() || job.Checkpoint.Resume != "auto" {
		return nil
	}
	elements, err := run.Elements()
	if err != nil {
		return err
	}
	for _, run := range append(elements, run) {
		own, err := job.Of(run)
		if err != nil {
			return err
		}
		dir, err := checkpoint.Open(run.CheckpointsPath(), checkpoint.Options{Log: log})
		if err != nil {
			return err
		}
		newest, err := dir.FindLatest(ctx)
		if err != nil {
			continue
		}
		err = trainer.Fits(own.Train, newest)
		newest.Close() // it was only read
		if errors.Is(err, trainer.ErrMismatch) {
			return fmt.Errorf("resume from %s: %w", newest.Info().Path, err)
		}
	}
	return ctx.Err()
}

// checkAnew refuses to begin an array anew of which only some elements are run now: the others would do so whenever they are run again.
// path is the run as a person would type it.
func checkAnew(path string, sets, words []string) error {
	narrows := func(word string) bool {
		return word == "--array" || strings.HasPrefix(word, "--array=") || strings.HasPrefix(word, "-a")
	}
	if !asksAnew(sets) || !slices.ContainsFunc(words, narrows) {
		return nil
	}
	return &usage.Error{
		Message: "--set checkpoint.resume holds for every element of the array, and --array runs only some of them now",
		Hint:    "for one element: ddpbatch resume " + slurm.ShellQuote(path+"/tasks/INDEX") + " --set checkpoint.resume=never",
	}
}
