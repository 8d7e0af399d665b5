package resume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

// Resumer runs again a run that has ended.
type Resumer struct {
	Env   submission.Env
	View  *runview.Viewer
	Warn  func([]jobfile.Fault)                                          // tells what the job file asks for in vain
	Write func(run *rundir.Dir, job *jobfile.Job, sbatch []string) error // renders the batch script into the run directory

	Sets  []string // --set
	Words []string // behind --: for sbatch, or of a simulated run for simulate

	finished []int // elements of an array that have nothing left to do, as Check has found
}

// Claim keeps other commands from submitting a run until release is called. Where a process that simulates it has the claim, it says so.
func (r *Resumer) Claim(ctx context.Context, run *rundir.Dir) (release func(), claim *rundir.Claim, err error) {
	release, claim, err = r.Env.Claim(run, rundir.EventResume)
	if errors.As(err, new(*usage.Error)) {
		if row, statusErr := r.View.Status(ctx, run); statusErr == nil && row.Simulated {
			err = notEnded(row.StillOpen(), row.Job)
		}
	}
	return release, claim, err
}

// Check refuses a run that has not ended, and words and settings that do not go with it. Where the run has nothing left to do, it returns
// the sentence that says so.
func (r *Resumer) Check(ctx context.Context, run *rundir.Dir) (finished string, err error) {
	if err := checkSwept(r.Sets); err != nil {
		return "", err
	}
	row, err := r.status(ctx, run)
	if err != nil {
		return "", err
	}
	path := r.View.From.Short(run.Path())
	switch {
	case !row.Ended:
		return "", notEnded(row.StillOpen(), row.Job)
	case moreToDo(run, r.Sets):
	case row.Finished():
		return describeFinished(run, path, r.Sets, r.Words)
	default:
		r.finished = row.FinishedElements()
	}
	return "", checkAnew(path, r.Sets, r.Words)
}

// status is the status of a run that is to be submitted again. What nobody lived to record of its newest submission is recorded first,
// and Slurm must know no other job of its script: without Slurm's word nothing is submitted.
func (r *Resumer) status(ctx context.Context, run *rundir.Dir) (runview.RunStatus, error) {
	s, err := submission.Newest(ctx, run, true, submission.AskUserJobs(r.Env.Slurm))
	if err != nil {
		return runview.RunStatus{}, err
	}
	if _, err := r.Env.RecordLost(s); err != nil {
		return runview.RunStatus{}, err
	}
	row, err := r.View.Status(ctx, run)
	switch {
	case err != nil:
		return row, err
	case s.Asked != nil && (s.Open != nil || row.Ended && !row.Finished()):
		return row, fmt.Errorf("look whether the run has a job that has not ended: %w", s.Asked)
	case !row.Ended:
		return row, nil
	case s.Alive != nil:
		return row, notEnded(fmt.Sprintf("job %s is still %s", s.Alive.ID, s.Alive.State), s.Alive.ID)
	}
	return row, nil
}

func notEnded(what, name string) error {
	return usage.Errorf("%s; wait for its end, or cancel it: ddpbatch cancel %s", what, slurm.ShellQuote(name))
}

// Left are the elements of a run's array that are to be run, after Check: those that have not done what they were to do. nil: all, or it
// is no array.
func (r *Resumer) Left(job *jobfile.Job) []int {
	array, err := job.Array()
	if err != nil || array == nil || len(r.finished) == 0 {
		return nil
	}
	left := slices.DeleteFunc(array.Indices, func(index int) bool {
		_, done := slices.BinarySearch(r.finished, index)
		return done
	})
	if len(left) == 0 { // a --set has made the array smaller
		return nil
	}
	return left
}

// Job is the run's job with the settings of now over those of before.
func (r *Resumer) Job(ctx context.Context, run *rundir.Dir) (*jobfile.Job, error) {
	spec := run.Spec()
	return r.SimulatedJob(ctx, run, spec.Sets, r.Sets, spec.Pretend)
}

// SimulatedJob is Job for a simulated run: kept is what stays of the settings of before, and pretend are simulate's flags.
func (r *Resumer) SimulatedJob(ctx context.Context, run *rundir.Dir, kept, sets, pretend []string) (*jobfile.Job, error) {
	job, warnings, err := override(ctx, run, kept, sets, pretend)
	r.Warn(warnings)
	return job, err
}

// ArrayWords are the words by which sbatch is asked, after Check, for one element of an array, or for those that are left; none where
// all of the array runs, or there is none.
func (r *Resumer) ArrayWords(run *rundir.Dir, job *jobfile.Job) []string {
	if run.Spec().ArraySize > 0 {
		return nil // each of its pieces has its own
	}
	if index, ok := run.Index(); ok {
		return []string{"--array=" + strconv.Itoa(index)}
	}
	if left := r.Left(job); left != nil {
		array, _ := job.Array()
		array.Indices = left
		return []string{"--array=" + array.String()}
	}
	return nil
}

// Pieces are the arrays, after Check, by which a sweep that is several is run again, or one element of it; none: it is one.
func (r *Resumer) Pieces(run *rundir.Dir, job *jobfile.Job) ([]submission.Piece, error) {
	size := run.Spec().ArraySize
	array, err := job.Array()
	if err != nil || array == nil || size == 0 {
		return nil, err
	}
	if index, ok := run.Index(); ok {
		array.Indices, array.Limit = []int{index}, 0
	} else if left := r.Left(job); left != nil {
		array.Indices = left
	}
	return submission.Pieces(*array, size)
}

// clustersOf are the clusters that sbatch may submit a run to again. Elements of an array may be several jobs of one run, whose cluster is
// one: an array stays where it is.
func clustersOf(run *rundir.Dir, job *jobfile.Job) (string, error) {
	asked, on := job.Clusters(), run.Cluster()
	array, _ := job.Array()
	id, err := run.JobID()
	switch {
	case err != nil || array == nil || id == "":
		return asked, err
	case asked == "" || slices.Contains(strings.Split(asked, ","), on):
		return on, nil
	}
	return "", usage.Errorf("slurm.clusters = %q: elements of an array are resumed on the cluster that it was submitted to (job %s)",
		asked, slurm.JobID{ID: id, Cluster: on})
}

// Submit hands a run, which is claimed and has been checked, to Slurm. It returns its job, and Slurm's id of that. Of one element of an
// array, or those that are left, it is the array that is submitted: for these alone; of a chain there is an id for each link.
func (r *Resumer) Submit(ctx context.Context, run *rundir.Dir, claim *rundir.Claim) (job *jobfile.Job, ids []string, err error) {
	if err := submission.CheckClaim(claim); err != nil {
		return nil, nil, err
	}
	before := run.Spec()
	if job, err = r.Job(ctx, run); err != nil {
		return nil, nil, err
	}
	undo := func(err error) error { // what was not submitted is not asked for again
		if len(r.Sets) == 0 || submission.CheckClaim(claim) != nil { // else the spec may be another command's by now
			return err
		}
		return errors.Join(err, run.WriteSpec(before))
	}
	if len(r.Sets) > 0 {
		unfit := checkFits(ctx, run, job, r.Env.Log)
		if err := submission.CheckClaim(claim); err != nil {
			return nil, nil, errors.Join(unfit, err)
		}
		if unfit != nil {
			return nil, nil, undo(unfit) // the nodes would find the same
		}
	}
	resumed, sbatch := rundir.Event{Detail: rundir.EventResume}, slices.Concat(r.ArrayWords(run, job), r.Words)
	whole := run.Whole() // whose the script is
	if index, ok := run.Index(); ok {
		resumed.Element = &index
	} else if left := r.Left(job); left != nil {
		resumed.Spans = rundir.SpansOf(left)
	}
	pieces, err := r.Pieces(run, job)
	if err != nil {
		return nil, nil, undo(err)
	}
	clusters, err := clustersOf(whole, job)
	if err != nil {
		return nil, nil, undo(err)
	}
	if err := r.Write(whole, job, sbatch); err != nil {
		return nil, nil, undo(err)
	}
	order := submission.Order{Words: sbatch, Links: job.Links(), Pieces: pieces, Clusters: clusters, Event: resumed}
	ids, err = r.Env.SubmitAll(ctx, whole, claim, order)
	switch {
	case err == nil:
		return job, ids, nil
	case errors.Is(err, rundir.ErrClaimLost):
		return nil, nil, err // the run is another command's to submit: nothing of it is undone
	case submission.NotSubmitted(err):
		return nil, nil, undo(err)
	}
	return nil, nil, fmt.Errorf("%w; Slurm may have taken the job all the same: ddpbatch status %s", err, slurm.ShellQuote(whole.Path()))
}
