package main

import (
	"errors"
	"slices"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/blame"
)

// explainElement says of an array's element that has no directory whether the array has it at all. Other errors stay as they are.
func explainElement(e *env, err error) error {
	var none *rundir.NoElementError
	if !errors.As(err, &none) {
		return err
	}
	run := e.named(none.Run.Path())
	array, err := arrayIn(none.Run)
	switch {
	case err != nil:
		return err
	case array == nil:
		return usagef("there is no array element %d in %s: it is no array", none.Index, run)
	case slices.Contains(array.indices, none.Index):
		return usagef("element %d of the array %s has not begun", none.Index, run)
	case len(array.all()) == 0:
		return usagef("there is no array element %d in %s: none has begun", none.Index, run)
	}
	return usagef("there is no array element %d in %s; there are %s", none.Index, run, blame.Ranges(array.all()))
}

// waitingElement is the job of an array's element that was submitted and has no directory, as it has not begun; the run is the array's.
func waitingElement(err error) (run *rundir.Dir, id string, ok bool) {
	var none *rundir.NoElementError
	if !errors.As(err, &none) || none.Run.Spec().Kind != "slurm" {
		return nil, "", false
	}
	array, err := arrayIn(none.Run)
	if err != nil || array == nil || len(array.indices) > 0 && !slices.Contains(array.indices, none.Index) {
		return nil, "", false
	}
	jobs, err := array.jobs(none.Run)
	return none.Run, jobs.of(none.Index, ""), err == nil && jobs.whole != ""
}

func isNoElement(err error) bool {
	var none *rundir.NoElementError
	return errors.As(err, &none)
}
