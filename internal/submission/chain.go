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

// Order says what sbatch is to submit for a run.
type Order struct {
	Words    []string     // options of sbatch
	First    []string     // further options for the chain's first link
	Links    int          // number of links of the chain; 1: one job
	Pieces   []Piece      // the arrays of a sweep that is submitted as several; empty: one array
	Clusters string       // among which sbatch may choose, "a,b"; "": the default cluster
	Event    rundir.Event // its detail is the event to record when Slurm accepts the job
}

// SubmitAll submits the job of a run, or all links of its chain, and returns their IDs. Each link waits for the end of all links before it,
// and not only of the previous one, which a user may cancel while an earlier one runs. Each link is recorded before the next is submitted.
// All are on the cluster of the first.
//
// If Slurm refuses a link, the links before it are canceled, and NotSubmitted reports true for the error; the IDs are then those of the
// canceled jobs. A [*ChainError] names links that remain.
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

// with returns e for what follows the first job of an order: on its cluster.
func (e Env) with(first slurm.JobID, o Order) Env {
	e.Slurm = e.Slurm.On(cmp.Or(first.Cluster, o.Clusters))
	return e
}

// chainIsOver reports whether the chain of the jobs ids has nothing left to do, because its first link may already have begun and ended. It
// fails if the newest link is not recorded, because the next link to begin might be taken for it.
func chainIsOver(run *rundir.Dir, ids []string) (bool, error) {
	known, err := run.Submissions()
	if err != nil {
		return false, err
	}
	if !slices.Equal(known.Chain, ids) {
		return false, errors.New("the links before it are missing from the run's ledger")
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

// ChainError means that a link of a chain, or an array of a sweep, could not be submitted, and that those before it remain.
type ChainError struct {
	Jobs []string
	What string // what the jobs are: "links" of a chain, or "arrays" of a sweep
	Err  error
}

func (e *ChainError) Error() string {
	return fmt.Sprintf("%v; Slurm has the %s before it, %s", e.Err, e.What, NameJobs(e.Jobs))
}

func (e *ChainError) Unwrap() error { return e.Err }

// NameJobs formats job IDs for people.
func NameJobs(ids []string) string {
	if len(ids) == 1 {
		return "job " + ids[0]
	}
	return "jobs " + strings.Join(ids, ", ")
}

// takeBackLimit limits the time for canceling links, which continues if the submitting command is interrupted.
const takeBackLimit = 15 * time.Second

// takeBack cancels the jobs ids, links of a chain or arrays of a sweep, if the next one was certainly not submitted; failed says why. If
// that is not certain they remain: they do their part, and the run is resumed after them.
func (e Env) takeBack(ctx context.Context, run *rundir.Dir, ids []string, what string, failed error) error {
	if !NotSubmitted(failed) || errors.Is(failed, rundir.ErrClaimLost) { // then another command decides
		return &ChainError{ids, what, failed}
	}
	for _, id := range ids { // one that begins just now is ended by the cancel too
		if err := e.NoteCancel(run, id); err != nil {
			return &ChainError{ids, what, errors.Join(failed, err)}
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackLimit)
	defer cancel()
	if err := e.Slurm.CancelNow(ctx, ids[0], ids[1:]...); err != nil {
		return &ChainError{ids, what, fmt.Errorf("%w; and they could not be canceled: %w", failed, err)}
	}
	return fmt.Errorf("%w (the %s before it, %s, were canceled)", failed, what, NameJobs(ids))
}

// NoteCancel records that a job is to be canceled. Callers must call it before they cancel, so that an attempt that ends just then does not
// requeue its job. The elements of an array read it from the array's ledger.
func (e Env) NoteCancel(run *rundir.Dir, id string) error {
	job, _, _ := strings.Cut(id, ";") // without the cluster, as the job itself knows it
	return run.Append(rundir.Event{Time: e.Now(), Event: rundir.EventCancel, Job: job, Detail: "job " + id})
}
