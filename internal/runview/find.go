package runview

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi/launch/blame"
	"ddpbatch/slurm"
)

// Find opens the run that a user names by job ID or path, and returns its newest job ID. runs is the directory in which job IDs are looked
// up.
func (v *Viewer) Find(runs, name string) (*rundir.Dir, string, error) {
	run, err := v.find(runs, name)
	if err != nil {
		return nil, "", &usage.Error{Message: ExplainElement(v.From, err).Error() + v.elsewhere(name, err)}
	}
	v.warnOfOwner(run, name)
	id, err := NewestJob(run)
	if err != nil {
		return nil, "", err
	}
	return run, id, nil
}

// warnOfOwner says whose run a user named by something else than its path, if it is the run of another user.
func (v *Viewer) warnOfOwner(run *rundir.Dir, name string) {
	if !run.IsOwn() && !v.isThere(name) {
		v.Log.Warn("this is the run of another user", "name", name, "run", v.From.Short(run.Path()), "user", run.Owner())
	}
}

// FindToResume is Find for a resume. If it finds an array's element that has not begun, the error says how to run it.
func (v *Viewer) FindToResume(runs, name string) (*rundir.Dir, error) {
	run, _, err := v.Find(runs, name)
	if err == nil {
		return run, nil
	}
	array, _, waits := v.WaitingElement(runs, name)
	if !waits {
		return nil, err
	}
	whole := slurm.ShellQuote(v.From.Named(array.Path()))
	return nil, &usage.Error{
		Message: err.Error(), Hint: "once the array has ended, resume all of it, which runs this element, too: ddpbatch resume " + whole,
	}
}

// WaitingElement finds the array of an element that a user names and that has not begun. ok is false if the name means anything else.
func (v *Viewer) WaitingElement(runs, name string) (array *rundir.Dir, index int, ok bool) {
	_, err := v.find(runs, name)
	none, ok := errors.AsType[*rundir.NoElementError](err)
	if !ok {
		return nil, 0, false
	}
	asked, err := arrayIn(none.Run)
	if err != nil || asked == nil || !slices.Contains(asked.indices, none.Index) {
		return nil, 0, false
	}
	v.warnOfOwner(none.Run, name)
	return none.Run, none.Index, true
}

// FindJobs is Find for a user who means all of a run's jobs. An array of which elements were resumed without the others has several jobs:
// FindJobs returns the one that is named by its ID, or else all of them. A pending element has no directory yet, and then the run is the
// array.
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

// find opens the run that a user names. A plain name means a job, or a run in runs, before it means a directory in the working directory,
// because another user may have created that.
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

// elsewhere completes the message that no run here has the job ID name, if runs in other folders have it.
func (v *Viewer) elsewhere(name string, err error) string {
	_, isHere := errors.AsType[*rundir.NoElementError](err)
	if isHere || !errors.Is(err, rundir.ErrNotFound) || !rundir.IsJobID(name) || v.Elsewhere == nil {
		return ""
	}
	array, _, _ := strings.Cut(name, "_")
	var newest *rundir.Dir // a rebuilt cluster counts from 1 again
	for _, run := range v.Elsewhere() {
		id, err := NewestJob(run)
		if err == nil && (id == name || id == array) && (newest == nil || run.Spec().Created.After(newest.Spec().Created)) {
			newest = run
		}
	}
	if newest == nil {
		return ""
	}
	return fmt.Sprintf("; a job %s is in %s (ddpbatch status --all shows your runs of all folders)", name, v.From.Short(newest.Path()))
}

// isPath reports whether name is a path, and not the plain name of a job or a run.
func isPath(name string) bool {
	return strings.ContainsRune(name, filepath.Separator) || name == "." || name == ".."
}

// isThere reports whether name is a path that exists visibly. A path that ends in NAME-JOBID leads to a run by a hidden link.
func (v *Viewer) isThere(name string) bool {
	_, err := os.Lstat(v.From.Abs(name))
	return isPath(name) && err == nil
}

// jobsNamed returns the jobs that a user means by naming a run, whose newest job is id. For a chain these are all links. An array of which
// elements were resumed without the others has several jobs: the one that is named by its ID, or else all of them.
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
	if run.Spec().ArraySize > 0 { // any of its arrays stands for the sweep
		return jobs.ids(), nil
	}
	for _, id := range jobs.known {
		if id == name {
			return []string{id}, nil
		}
	}
	return jobs.ids(), nil
}

// ExplainElement says, for an array's element without a directory, whether the array has such an element. It returns other errors
// unchanged.
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
		return usage.Errorf("array element %d does not exist in %s, which is not an array", none.Index, run)
	case slices.Contains(array.indices, none.Index):
		return usage.Errorf("element %d of the array %s has not begun yet", none.Index, run)
	case len(array.all()) == 0:
		return usage.Errorf("array element %d does not exist in %s: no element has begun", none.Index, run)
	}
	return usage.Errorf("array element %d does not exist in %s; its elements are %s", none.Index, run, blame.Ranges(array.all()))
}

// waitingElement returns the array and the job of an array's element that was submitted but has not begun, and so has no directory.
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
