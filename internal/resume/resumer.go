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

// Resumer submits a run again that has ended.
type Resumer struct {
	Env   submission.Env
	View  *runview.Viewer
	Warn  func([]jobfile.Fault)                                          // about keys of the job file
	Write func(run *rundir.Dir, job *jobfile.Job, sbatch []string) error // renders the batch script into the run directory

	Sets  []string // --set
	Words []string // arguments after --: for sbatch, or for simulate if the run is simulated

	Remarks func(*jobfile.Job) []jobfile.Remark // nil, or adds to the warnings about a job that Sets change

	finished []int         // elements of an array that have nothing left to do, found by Check
	claim    *rundir.Claim // nil: none
}

// Claim keeps other commands from submitting a run until release is called. If a process that simulates the run has the claim, the error
// says so.
func (r *Resumer) Claim(ctx context.Context, run *rundir.Dir) (release func(), claim *rundir.Claim, err error) {
	release, claim, err = r.Env.Claim(run, rundir.EventResume)
	r.claim = claim
	if errors.As(err, new(*usage.Error)) {
		if row, statusErr := r.View.Status(ctx, run); statusErr == nil && row.Simulated {
			err = notEnded(row.StillOpen(), row.Job)
		}
	}
	return release, claim, err
}

// Check returns an error if the run has not ended, or if words or settings do not fit it. If the run has nothing left to do, it returns a
// sentence that says so.
func (r *Resumer) Check(ctx context.Context, run *rundir.Dir) (finished string, err error) {
	if err := checkSwept(r.Sets); err != nil {
		return "", err
	}
	row, err := r.status(ctx, run)
	if err != nil {
		return "", err
	}
	path := r.View.From.Short(run.Path())
	if err := checkIdle(run, path, r.Sets); err != nil {
		return "", err
	}
	switch {
	case !row.Ended:
		return "", notEnded(row.StillOpen(), row.Job)
	case moreToDo(run, r.Sets):
	case row.Finished():
		if spec := run.Spec(); len(r.Sets) > 0 { // settings that are not valid are refused even if they would have no effect
			if _, _, _, err := changedBy(ctx, run, spec.Sets, r.Sets, spec.Pretend, nil); err != nil {
				return "", err
			}
		}
		return describeFinished(run, path, r.Sets, r.Words)
	default:
		r.finished = row.FinishedElements()
	}
	return "", checkAnew(path, r.Sets, r.Words)
}

// status returns the status of a run that is to be submitted again. It first records the outcome of the newest submission if no process has
// done so. Slurm must know no other job of the run's script; if Slurm does not answer, nothing is submitted.
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
		return row, fmt.Errorf("find out whether the run still has a job: %w", s.Asked)
	case !row.Ended:
		return row, nil
	case s.Alive != nil:
		return row, notEnded(fmt.Sprintf("job %s is still %s", s.Alive.ID, s.Alive.State), s.Alive.ID)
	}
	return row, nil
}

func notEnded(what, name string) error {
	if strings.HasSuffix(what, "COMPLETING") { // Slurm cleans up after it
		return usage.Errorf("%s; wait for its end", what)
	}
	return usage.Errorf("%s; wait for its end, or cancel it: ddpbatch cancel %s", what, slurm.ShellQuote(name))
}

// Left returns the elements of a run's array that have not finished, after Check. It returns nil if all are to run, or if the run is not an
// array.
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

// Job returns the run's job with the new settings applied after the earlier ones. If these do not fit the newest checkpoint of the run, or
// of an element of its array, Job returns an error and changes nothing.
func (r *Resumer) Job(ctx context.Context, run *rundir.Dir) (*jobfile.Job, error) {
	spec := run.Spec()
	return r.SimulatedJob(ctx, run, spec.Sets, r.Sets, spec.Pretend)
}

// SimulatedJob is Job for a simulated run. kept are the earlier settings that remain, and pretend are simulate's flags.
func (r *Resumer) SimulatedJob(ctx context.Context, run *rundir.Dir, kept, sets, pretend []string) (*jobfile.Job, error) {
	fits := func(job *jobfile.Job, changed rundir.Overridden) error {
		unfit := checkFits(ctx, run, job, changed, r.Env.Log) // the nodes would find the same
		if r.claim == nil {
			return unfit
		}
		return errors.Join(unfit, submission.CheckClaim(r.claim)) // the comparison may have taken long
	}
	job, warnings, err := override(ctx, run, kept, sets, pretend, r.Remarks, fits)
	r.Warn(warnings)
	return job, err
}

// ArrayWords returns the arguments that make sbatch run one element of an array, or the elements that are left, after Check. It returns
// none if the whole array runs, or if there is none.
func (r *Resumer) ArrayWords(run *rundir.Dir, job *jobfile.Job) []string {
	if run.Spec().ArraySize > 0 {
		return nil // each piece has its own arguments
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

// Pieces returns the arrays by which a sweep that consists of several arrays is run again, or one element of it, after Check. It returns
// none if the sweep is one array.
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

// clustersOf returns the clusters that sbatch may submit a run to again. The elements of an array may be several jobs of one run, which has
// only one cluster, so an array stays on its cluster.
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

// Submit submits a claimed and checked run to Slurm. It returns the job and its IDs in Slurm; a chain has one for each link. Of an array it
// submits only the one element, or the elements that are left.
func (r *Resumer) Submit(ctx context.Context, run *rundir.Dir, claim *rundir.Claim) (job *jobfile.Job, ids []string, err error) {
	if err := submission.CheckClaim(claim); err != nil {
		return nil, nil, err
	}
	before := run.Spec()
	if job, err = r.Job(ctx, run); err != nil {
		return nil, nil, err
	}
	undo := func(err error) error { // settings that were not submitted must not stay in the spec
		if len(r.Sets) == 0 || submission.CheckClaim(claim) != nil { // without the claim the spec may belong to another command
			return err
		}
		return errors.Join(err, run.WriteSpec(before))
	}
	resumed, sbatch := rundir.Event{Detail: rundir.EventResume}, slices.Concat(r.ArrayWords(run, job), r.Words)
	whole := run.Whole() // the script belongs to the whole run
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
		return nil, nil, err // another command submits the run: nothing may be undone
	case submission.NotSubmitted(err):
		return nil, nil, undo(err)
	}
	return nil, nil, fmt.Errorf("%w; Slurm may have accepted the job nevertheless: check with ddpbatch status %s", err,
		slurm.ShellQuote(whole.Path()))
}
