package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
	"ddpbatch/trainer"
)

// asksAnew tells whether sets have a word about checkpoint.resume.
func asksAnew(sets []string) bool {
	return slices.ContainsFunc(sets, func(set string) bool {
		key := jobfile.SetKey(set)
		return key == "checkpoint.resume" || key == "checkpoint"
	})
}

// anewFrom is the attempt from which on the run begins anew where checkpoint.resume says "never", and that of each element of an array: the next one,
// where that is asked for now, or else what it was. So it holds once each time that it is asked for: of an array once for each element, as
// they count their attempts themselves; and where run is one element, for that alone.
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

// checkFits compares a job of the built-in trainer with the newest checkpoint of a run, and of each element of an array. What cannot be
// read here, or is on a node's own disk, the nodes compare.
func checkFits(ctx context.Context, e *env, run *rundir.Dir, job *jobfile.Job) error {
	if !job.Builtin() || job.Checkpoint.Resume != "auto" {
		return nil
	}
	elements, err := run.Elements()
	if err != nil {
		return err
	}
	for _, run := range append(elements, run) {
		dir, err := checkpoint.Open(run.CheckpointsPath(), checkpoint.Options{Log: e.log()})
		if err != nil {
			return err
		}
		newest, err := dir.FindLatest(ctx)
		if err != nil {
			continue
		}
		err = trainer.Fits(job.Train, newest)
		newest.Close() // it was only read
		if errors.Is(err, trainer.ErrMismatch) {
			return fmt.Errorf("resume from %s: %w", newest.Info().Path, err)
		}
	}
	return ctx.Err()
}

// checkAnew refuses to begin an array anew of which only some elements are run now: the others would do so whenever they are run again.
func checkAnew(e *env, run *rundir.Dir, sets, words []string) error {
	narrows := func(word string) bool {
		return word == "--array" || strings.HasPrefix(word, "--array=") || strings.HasPrefix(word, "-a")
	}
	if !asksAnew(sets) || !slices.ContainsFunc(words, narrows) {
		return nil
	}
	return &usage.Error{
		Message: "--set checkpoint.resume holds for every element of the array, and --array runs only some of them now",
		Hint:    "for one element: ddpbatch resume " + slurm.ShellQuote(e.short(run.Path())+"/tasks/INDEX") + " --set checkpoint.resume=never",
	}
}
