package submission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

// Order is what sbatch is to take for a run.
type Order struct {
	Words    []string     // options of sbatch
	First    []string     // further ones, of the chain's first link alone
	Links    int          // of the chain; 1: it is one job
	Pieces   []Piece      // of a sweep that is more than one array; none: it is one
	Clusters string       // that sbatch may choose among, "a,b"; "": the default cluster
	Event    rundir.Event // its detail is the event that follows where Slurm takes the job
}

// SubmitAll submits the job of a run, or all links of its chain, and returns their ids. Each link waits for the end of all that come
// before it, and not only of the one before: a person may cancel that one while an earlier one runs. Each is recorded before the next is
// submitted, and all are on the cluster of the first.
//
// Where Slurm refuses a link, those before it are cancelled, and the error matches NotSubmitted; the ids are then those of the cancelled
// jobs. A [*ChainError] tells of links that stay.
func (e Env) SubmitAll(ctx context.Context, run *rundir.Dir, claim *rundir.Claim, o Order) (ids []string, err error) {
	e.Slurm = e.Slurm.On(o.Clusters)
	if len(o.Pieces) > 0 {
		return e.submitPieces(ctx, run, claim, o)
	}
	note := o.Event
	if o.Links > 1 {
		note.Link, note.Links = 1, o.Links
	}
	job, err := e.Submit(ctx, run, claim, slices.Concat(o.Words, o.First), note)
	if err != nil {
		return nil, err
	}
	e = e.with(job, o)
	ids, note.Detail = []string{job.ID}, rundir.EventLink
	for len(ids) < o.Links {
		over, err := chainIsOver(run, ids)
		if over {
			return ids, nil
		}
		if err == nil {
			note.Link = len(ids) + 1
			job, err = e.Submit(ctx, run, claim, append(slices.Clone(o.Words), "--dependency="+slurm.AfterAny(ids)), note)
		}
		if err != nil {
			return ids, e.takeBack(ctx, run, ids, "links", fmt.Errorf("link %d of %d of the chain: %w", len(ids)+1, o.Links, err))
		}
		ids = append(ids, job.ID)
	}
	return ids, nil
}

// with is e for what follows the first job of an order: on its cluster.
func (e Env) with(first slurm.JobID, o Order) Env {
	e.Slurm = e.Slurm.On(cmp.Or(first.Cluster, o.Clusters))
	return e
}

// chainIsOver reports whether the chain whose links are the jobs ids has nothing left to do, as its first link may have begun and ended by
// now. It is an error where the newest link is not recorded: what begins as the next could be taken for it.
func chainIsOver(run *rundir.Dir, ids []string) (bool, error) {
	known, err := run.Submissions()
	if err != nil {
		return false, err
	}
	if !slices.Equal(known.Chain, ids) {
		return false, errors.New("the run's ledger does not hold the links before it")
	}
	history, err := run.Ledger()
	if err != nil {
		return false, err
	}
	for _, event := range slices.Backward(history) {
		switch id, _ := event.SubmittedJob(); {
		case id == ids[0]:
			return false, nil
		case event.Event == rundir.EventCancel, event.Event == rundir.EventGiveUp,
			event.Event == rundir.EventEnd && event.Cause == string(recovery.Done):
			return true, nil
		}
	}
	return false, nil
}

// ChainError: a link of a chain, or an array of a sweep, could not be submitted, and those before it stay.
type ChainError struct {
	Jobs []string
	What string // the jobs are: "links" of a chain, or the "arrays" of a sweep
	Err  error
}

func (e *ChainError) Error() string {
	return fmt.Sprintf("%v; Slurm has the %s before it, %s", e.Err, e.What, NameJobs(e.Jobs))
}

func (e *ChainError) Unwrap() error { return e.Err }

// NameJobs names jobs for a person.
func NameJobs(ids []string) string {
	if len(ids) == 1 {
		return "job " + ids[0]
	}
	return "jobs " + strings.Join(ids, ", ")
}

// takeBackLimit bounds the cancel of links, which goes on where the command that submits them is interrupted.
const takeBackLimit = 15 * time.Second

// takeBack cancels the jobs ids, links of a chain or arrays of a sweep, of which the next was certainly not submitted, failed says why.
// Where that is not certain they stay: they do what they can, and the run is resumed after them.
func (e Env) takeBack(ctx context.Context, run *rundir.Dir, ids []string, what string, failed error) error {
	if !NotSubmitted(failed) || errors.Is(failed, rundir.ErrClaimLost) { // then another command has a say
		return &ChainError{ids, what, failed}
	}
	for _, id := range ids { // one that begins just now ends by that
		if err := e.NoteCancel(run, id); err != nil {
			return &ChainError{ids, what, errors.Join(failed, err)}
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackLimit)
	defer cancel()
	if err := e.Slurm.CancelNow(ctx, ids[0], ids[1:]...); err != nil {
		return &ChainError{ids, what, fmt.Errorf("%w; and they could not be cancelled: %w", failed, err)}
	}
	return fmt.Errorf("%w (the %s before it, %s, were cancelled)", failed, what, NameJobs(ids))
}

// NoteCancel records that a job is to be cancelled. Callers do so before they act: an attempt that ends just then must not requeue its
// job. The elements of an array read it from the array's ledger.
func (e Env) NoteCancel(run *rundir.Dir, id string) error {
	job, _, _ := strings.Cut(id, ";") // less the cluster: as the job itself knows it
	return run.Append(rundir.Event{Time: e.Now(), Event: rundir.EventCancel, Job: job, Detail: "job " + id})
}
