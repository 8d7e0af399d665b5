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

// Env describes the process that submits, or records a submission.
type Env struct {
	Hostname string
	Now      func() time.Time
	Log      *slog.Logger
	Slurm    *slurm.Client
	Dropped  []string // variables that are removed for Slurm's commands
	Cluster  string   // on which the job of this process runs; "": none, or not known
}

// Claim keeps other commands from submitting a run until release is called.
func (e Env) Claim(run *rundir.Dir, doing string) (release func(), claim *rundir.Claim, err error) {
	claim, err = run.Claim(e.Hostname, doing, e.Now())
	if held, ok := errors.AsType[*rundir.HeldError](err); ok {
		return nil, nil, &usage.Error{Message: held.Error()}
	}
	if err != nil {
		return nil, nil, err
	}
	if claim.Dead != nil {
		e.Log.Warn("an earlier command was killed while it had claimed this run", "command", claim.Dead.String())
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

// Submit submits the script of a claimed run by sbatch, and records the job. It first records in the ledger that it is about to submit: if
// this process is killed, the next command knows that there may be a job.
func (e Env) Submit(
	ctx context.Context, run *rundir.Dir, claim *rundir.Claim, sbatch []string, submitting rundir.Event,
) (slurm.JobID, error) {
	if len(e.Dropped) > 0 {
		e.Log.Warn("this shell is inside a job or carries rank variables: sbatch does not get these", "variables", e.Dropped)
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
		e.Log.Warn("sbatch printed the job ID, but then failed", "error", err)
	case err != nil && NotSubmitted(err):
		return slurm.JobID{}, errors.Join(err,
			run.Append(rundir.Event{Time: e.Now(), Event: rundir.EventNotTaken, Element: submitting.Element,
				Link: submitting.Link, Links: submitting.Links}))
	case err != nil:
		return slurm.JobID{}, err
	}
	// The job exists now: a later failure must not hide its ID.
	if err := e.Record(run, id, submitting); err != nil {
		e.Log.Warn("the job is submitted, but its run directory could not be updated", "job", id.ID, "error", err)
	}
	return id, nil
}

// submittedTooLate keeps a job from running beside that of the command that has the claim now. A zero id means that Slurm accepted no job;
// failed then says why.
func (e Env) submittedTooLate(run *rundir.Dir, id slurm.JobID, failed, lost error) error {
	if id.ID == "" {
		return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("%w; %w", failed, lost)}
	}
	err := fmt.Errorf("job %s was submitted too late: %w; to cancel it: %s", id.ID, lost, id.CancelCommand())
	noted := run.Append(rundir.Event{Time: e.Now(), Event: rundir.EventTooLate, Job: id.ID})
	return &exit.Error{Code: exit.Usage, Err: errors.Join(err, noted)}
}

// errNotAsked means that Slurm was not asked to accept the job.
var errNotAsked = errors.New("nothing was submitted")

// NotSubmitted reports whether Slurm certainly has no job from a failed Submit. After a timeout, a lost connection, or an unexpected
// answer, the job may exist.
func NotSubmitted(err error) bool {
	if errors.As(err, new(*ChainError)) {
		return false
	}
	if unreachable, ok := errors.AsType[*slurm.UnreachableError](err); ok {
		return unreachable.Unheard()
	}
	return errors.Is(err, slurm.ErrRefused) || errors.Is(err, slurm.ErrNoSlurm) || errors.Is(err, errNotAsked)
}

// PlainResume returns the command that continues a run, with the ddpbatch in the PATH. It has the run's whole path, because the job's log
// may be read from any directory.
func PlainResume(run *rundir.Dir) string { return "ddpbatch resume " + slurm.ShellQuote(run.Path()) }

// ResumeHint says how to continue a run that does not restart by itself.
func ResumeHint(run *rundir.Dir) string { return "to continue: " + PlainResume(run) }

// CorrectHint is ResumeHint for a run that ends in the same way again until a person corrects something. It says how, because resume does
// not read the job file again.
func CorrectHint(run *rundir.Dir) string {
	return "to continue: correct it, then " + PlainResume(run) +
		" (with --set KEY=VALUE for what job.toml says), or submit anew"
}

// ResumeCommand returns the command that continues a run, with its own copy of ddpbatch, from any directory.
func ResumeCommand(run *rundir.Dir, sets ...string) string {
	words := []string{run.Binary(), "resume", run.Path()}
	for _, set := range sets {
		words = append(words, "--set", set)
	}
	return slurm.ShellJoin(words)
}

// RecordLost records the job of a submission that was not recorded. It reports whether there was one.
func (e Env) RecordLost(s *Submission) (bool, error) {
	if s.Open == nil || s.Job == "" {
		return false, nil
	}
	return true, e.Record(s.Run, s.JobID(), *s.Open)
}

// Record records which job Slurm accepted for a run, unless that is known: before sbatch ends the job may have begun, and a user may have
// canceled it. submitting is the event of the submission.
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
	element, err := run.Task(*event.Element) // it has its own ledger
	if err != nil {
		return err
	}
	event.Element = nil
	return element.Append(event)
}

// NoteBegin records the beginning job if the command that submitted it was killed before it could. A job of an earlier submission must not
// begin after the run has been submitted again.
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
	case known.Dropped && jobNumber(id) < jobNumber(newest): // IDs rise, so a job of a higher ID was submitted by hand since
		return &exit.Error{Code: exit.Never, Err: fmt.Errorf(
			"job %s was submitted by a command that was killed, and the run has been submitted as job %s since; %s", id,
			newest, ResumeHint(run))}
	case jobID != id: // an element of an array that was submitted by hand
		return nil
	}
	return e.SetJobID(run, job.String())
}

// clusterOf returns the name of the cluster by which submitting commands find the job of a run that begins here; "" if they need none.
func (e Env) clusterOf(run *rundir.Dir) string {
	if run.Spec().Clusters != "" || run.Cluster() == e.Cluster { // otherwise it is on the default cluster
		return e.Cluster
	}
	return ""
}

// SetJobID records the job ID of a run, with its cluster if that is not the default. In a shared directory another user may have taken the
// name of the job's link. That is only a warning: the job runs without the link.
func (e Env) SetJobID(run *rundir.Dir, id string) error { return e.withoutLink(run.SetJobID(id)) }

// pointJobID is SetJobID for a further link of a chain.
func (e Env) pointJobID(run *rundir.Dir, id string) error { return e.withoutLink(run.PointJobID(id)) }

func (e Env) withoutLink(err error) error {
	if errors.Is(err, rundir.ErrLink) {
		e.Log.Warn("the run can only be found by its path, not by its job ID", "error", err)
		return nil
	}
	return err
}
