package submission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

// Env is what is known here of the process that submits, or records what was submitted.
type Env struct {
	Hostname string
	Now      func() time.Time
	Log      *slog.Logger
	Slurm    *slurm.Client
	Dropped  []string // variables that are kept from Slurm's commands
	Cluster  string   // on which the job around this process runs; "": there is none, or its Slurm does not say
}

// Claim keeps other commands from submitting a run until the claim is given back.
func (e Env) Claim(run *rundir.Dir, doing string) (release func(), claim *rundir.Claim, err error) {
	claim, err = run.Claim(e.Hostname, doing, e.Now())
	if held, ok := errors.AsType[*rundir.HeldError](err); ok {
		return nil, nil, &usage.Error{Message: held.Error()}
	}
	if err != nil {
		return nil, nil, err
	}
	if claim.Dead != nil {
		e.Log.Warn("an earlier command was killed before it was done with this run", "command", claim.Dead.String())
	}
	return sync.OnceFunc(func() {
		if err := claim.Release(); err != nil {
			e.Log.Warn("the run stays claimed until this process ends", "error", err)
		}
	}), claim, nil
}

// CheckClaim returns an error unless this command still has the claim on the run.
func CheckClaim(claim *rundir.Claim) error {
	err := claim.Check()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rundir.ErrClaimLost):
		return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("%w: %w", errNotAsked, err)}
	}
	return fmt.Errorf("%w: %w", errNotAsked, err)
}

// Submit hands the script of a run, which is claimed, to sbatch and records the job. What is to be submitted stands in the ledger
// before: where this process is killed meanwhile, the next command knows that there may be a job.
func (e Env) Submit(
	ctx context.Context, run *rundir.Dir, claim *rundir.Claim, sbatch []string, submitting rundir.Event,
) (slurm.JobID, error) {
	if len(e.Dropped) > 0 {
		e.Log.Warn("this shell is inside a job or carries rank variables: they are kept from sbatch", "variables", e.Dropped)
	}
	submitting.Time, submitting.Event = e.Now(), rundir.EventSubmitting
	if err := CheckClaim(claim); err != nil {
		return slurm.JobID{}, err
	}
	if err := run.Append(submitting); err != nil {
		return slurm.JobID{}, fmt.Errorf("%w: %w", errNotAsked, err)
	}
	id, err := e.Slurm.Submit(ctx, run.ScriptPath(), sbatch)
	if lost := claim.Check(); errors.Is(lost, rundir.ErrClaimLost) {
		return slurm.JobID{}, e.submittedTooLate(run, id, err, lost)
	}
	switch {
	case err != nil && id.ID != "":
		e.Log.Warn("sbatch told the job's id, and failed then", "error", err)
	case err != nil && NotSubmitted(err):
		return slurm.JobID{}, errors.Join(err,
			run.Append(rundir.Event{Time: e.Now(), Event: rundir.EventNotTaken, Element: submitting.Element,
				Link: submitting.Link, Links: submitting.Links}))
	case err != nil:
		return slurm.JobID{}, err
	}
	// From here on the job exists: what fails now must not hide its id.
	if err := e.Record(run, id, submitting); err != nil {
		e.Log.Warn("the job is submitted, but its run directory could not be updated", "job", id.ID, "error", err)
	}
	return id, nil
}

// submittedTooLate keeps the job that Slurm took from running beside that of the command which has the claim now. The zero id means that
// Slurm took no job; failed then says why.
func (e Env) submittedTooLate(run *rundir.Dir, id slurm.JobID, failed, lost error) error {
	if id.ID == "" {
		return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("%w; %w", failed, lost)}
	}
	err := fmt.Errorf("job %s was submitted too late: %w; to take it back: %s", id.ID, lost, id.CancelCommand())
	noted := run.Append(rundir.Event{Time: e.Now(), Event: rundir.EventTooLate, Job: id.ID})
	return &exit.Error{Code: exit.Usage, Err: errors.Join(err, noted)}
}

// errNotAsked: Slurm was not asked to take the job.
var errNotAsked = errors.New("nothing was submitted")

// NotSubmitted reports whether Slurm certainly knows nothing of the job that Submit failed to submit. After a
// time-out, a connection that was lost, or an answer that nobody understands, the job may exist.
func NotSubmitted(err error) bool {
	if errors.As(err, new(*ChainError)) {
		return false
	}
	if unreachable, ok := errors.AsType[*slurm.UnreachableError](err); ok {
		return unreachable.Unheard()
	}
	return errors.Is(err, slurm.ErrRefused) || errors.Is(err, slurm.ErrNoSlurm) || errors.Is(err, errNotAsked)
}

// ResumeHint says how to go on with a run that is not started again by itself. It names the whole path, as the job's log may be read from
// any folder.
func ResumeHint(run *rundir.Dir) string {
	return "to go on: ddpbatch resume " + slurm.ShellQuote(run.Path())
}

// ResumeCommand is what a person types to go on with a run, wherever they stand.
func ResumeCommand(run *rundir.Dir, sets ...string) string {
	words := []string{run.Binary(), "resume", run.Path()}
	for _, set := range sets {
		words = append(words, "--set", set)
	}
	return slurm.ShellJoin(words)
}

// RecordLost records the job of a submission that nobody recorded; it tells whether there was one.
func (e Env) RecordLost(s *Submission) (bool, error) {
	if s.Open == nil || s.Job == "" {
		return false, nil
	}
	return true, e.Record(s.Run, s.JobID(), *s.Open)
}

// Record tells a run, of which submitting notes the submission, which job Slurm took, unless that is known: the job itself may have
// begun, and a person may have cancelled it, before sbatch ends.
func (e Env) Record(run *rundir.Dir, id slurm.JobID, submitting rundir.Event) error {
	event := rundir.Event{
		Time: e.Now(), Event: cmp.Or(submitting.Detail, rundir.EventResume), Element: submitting.Element,
		Link: submitting.Link, Links: submitting.Links, Spans: submitting.Spans, Detail: "job " + id.ID,
	}
	if event.Event == rundir.EventLink { // on the cluster of the first
		if err := e.pointJobID(run, id.ID); err != nil {
			return err
		}
	} else if err := e.SetJobID(run, id.String()); err != nil {
		return err
	}
	if added, err := run.RecordJob(event); err != nil || !added || event.Element == nil {
		return err
	}
	element, err := run.Task(*event.Element) // whose ledger is its own
	if err != nil {
		return err
	}
	event.Element = nil
	return element.Append(event)
}

// NoteBegin records the job that begins, where the command that submitted it was killed before it could. A lost job must not begin once the
// run has been submitted again.
func (e Env) NoteBegin(run *rundir.Dir, jobID string) error {
	id := slurm.WholeID(jobID)
	job := slurm.JobID{ID: id, Cluster: e.clusterOf(run)}
	known, err := run.Submissions()
	if err != nil {
		return err
	}
	recorded, err := run.JobID()
	newest := cmp.Or(recorded, known.Newest())
	switch {
	case err != nil || known.Known(id):
		return err
	case slices.Contains(known.TooLate, id):
		return &exit.Error{Code: exit.Never, Err: fmt.Errorf(
			"job %s was submitted too late: another command had claimed the run; %s", id, ResumeHint(run))}
	case known.Open != nil:
		return e.Record(run, job, *known.Open)
	case recorded == id:
		return nil
	case known.Dropped && jobNumber(id) < jobNumber(newest): // ids rise: a job of a higher one was submitted by hand since
		return &exit.Error{Code: exit.Never, Err: fmt.Errorf(
			"job %s was submitted by a command that was killed, and the run has been submitted as job %s since; %s", id,
			newest, ResumeHint(run))}
	case jobID != id: // an element of an array that was submitted by hand
		return nil
	}
	return e.SetJobID(run, job.String())
}

// clusterOf is the cluster by whose name the job of a run that begins here is found by those who submit; "": they need none.
func (e Env) clusterOf(run *rundir.Dir) string {
	if run.Spec().Clusters != "" || run.Cluster() == e.Cluster { // else it is on the default cluster
		return e.Cluster
	}
	return ""
}

// SetJobID records the job id of a run, with its cluster where that is not the default one. In a shared folder another user may have taken
// the name of the job's link. That is only a warning: the job runs without the link.
func (e Env) SetJobID(run *rundir.Dir, id string) error { return e.withoutLink(run.SetJobID(id)) }

// pointJobID is SetJobID for a further link of a chain.
func (e Env) pointJobID(run *rundir.Dir, id string) error { return e.withoutLink(run.PointJobID(id)) }

func (e Env) withoutLink(err error) error {
	if errors.Is(err, rundir.ErrLink) {
		e.Log.Warn("the run is found by its path, and not by its job id", "error", err)
		return nil
	}
	return err
}
