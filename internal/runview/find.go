package runview

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi/launch/blame"
)

// Find opens the run that a person names by job id or path, and tells its newest job id. runs is the folder in which job ids are looked up.
func (v *Viewer) Find(runs, name string) (*rundir.Dir, string, error) {
	run, err := v.find(runs, name)
	if err != nil {
		return nil, "", &usage.Error{Message: ExplainElement(v.From, err).Error()}
	}
	if !run.IsOwn() && !v.isThere(name) {
		v.Log.Warn("this is the run of another user", "name", name, "run", v.From.Short(run.Path()), "user", run.Owner())
	}
	id, err := NewestJob(run)
	if err != nil {
		return nil, "", err
	}
	return run, id, nil
}

// FindJobs is Find for a person who means all of a run's jobs. An array of which elements were resumed alone is several jobs: the one
// that is named by its id, and else all of them. An element that waits has no directory yet: the run is the array's, then.
func (v *Viewer) FindJobs(runs, name string) (*rundir.Dir, []string, error) {
	_, err := v.find(runs, name)
	if array, id, waits := waitingElement(err); waits {
		return array, []string{id}, nil
	}
	run, id, err := v.Find(runs, name)
	if err != nil {
		return nil, nil, err
	}
	ids, err := jobsNamed(run, id, name)
	return run, ids, err
}

// find opens the run that a person names. A plain name means a job, or a run in runs, before it means a folder in the working
// directory: another user may have put that there.
func (v *Viewer) find(runs, name string) (*rundir.Dir, error) {
	if isPath(name) {
		return rundir.Find(runs, v.From.Abs(name))
	}
	run, err := rundir.Find(runs, name)
	if errors.Is(err, rundir.ErrNotFound) && !rundir.IsJobID(name) {
		if run, err := rundir.Open(v.From.Abs(name)); err == nil {
			return run, nil
		}
	}
	return run, err
}

// isPath reports whether name is a path, and not the plain name of a job or a run.
func isPath(name string) bool {
	return strings.ContainsRune(name, filepath.Separator) || name == "." || name == ".."
}

// isThere reports whether name is a path that a person has seen; one that ends in NAME-JOBID leads to a run by a hidden link.
func (v *Viewer) isThere(name string) bool {
	_, err := os.Lstat(v.From.Abs(name))
	return isPath(name) && err == nil
}

// jobsNamed are the jobs that a person means who names a run, whose newest job is id: all links of a chain. An array of which elements
// were resumed alone is several: the one that is named by its id, and else all of them.
func jobsNamed(run *rundir.Dir, id, name string) ([]string, error) {
	if c := chainOf(run); c != nil {
		return c.jobs, nil
	}
	array, err := arrayIn(run)
	if err != nil || array == nil {
		return []string{id}, err
	}
	name, _, _ = strings.Cut(name, ";") // the jobs of an array are on one cluster
	jobs, err := array.jobs(run)
	if err != nil {
		return nil, err
	}
	if run.Spec().ArraySize > 0 { // a person knows the sweep by any of its arrays
		return jobs.ids(), nil
	}
	for _, id := range jobs.known {
		if id == name {
			return []string{id}, nil
		}
	}
	return jobs.ids(), nil
}

// ExplainElement says of an array's element that has no directory whether the array has it at all. Other errors stay as they are.
func ExplainElement(from text.Dir, err error) error {
	none, ok := errors.AsType[*rundir.NoElementError](err)
	if !ok {
		return err
	}
	run := from.Named(none.Run.Path())
	array, err := arrayIn(none.Run)
	switch {
	case err != nil:
		return err
	case array == nil:
		return usage.Errorf("there is no array element %d in %s: it is no array", none.Index, run)
	case slices.Contains(array.indices, none.Index):
		return usage.Errorf("element %d of the array %s has not begun", none.Index, run)
	case len(array.all()) == 0:
		return usage.Errorf("there is no array element %d in %s: none has begun", none.Index, run)
	}
	return usage.Errorf("there is no array element %d in %s; there are %s", none.Index, run, blame.Ranges(array.all()))
}

// waitingElement is the job of an array's element that was submitted and has no directory, as it has not begun; the run is the array's.
func waitingElement(err error) (run *rundir.Dir, id string, ok bool) {
	none, ok := errors.AsType[*rundir.NoElementError](err)
	if !ok || none.Run.Spec().Kind != "slurm" {
		return nil, "", false
	}
	array, err := arrayIn(none.Run)
	if err != nil || array == nil || len(array.indices) > 0 && !slices.Contains(array.indices, none.Index) {
		return nil, "", false
	}
	jobs, err := array.jobs(none.Run)
	return none.Run, jobs.of(none.Index, ""), err == nil && jobs.whole != ""
}
