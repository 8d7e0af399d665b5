package attempt

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submission"
	"ddpbatch/mpi/launch/recovery"
)

// SrunEnd is what the batch script knows about srun's end.
type SrunEnd struct {
	Code      int
	Signals   []string // the signals that the script got
	Unstarted bool     // srun was not called, as the signals came before
	Failure   string   // the failure of the setup, because of which srun was not called; "": none
}

// End is what the batch script does last: it finds how the newest attempt of this start ended, decides what follows, and does it. Its
// error carries the exit code.
func End(ctx context.Context, e Env, run *rundir.Dir, end SrunEnd) error {
	ctx = context.WithoutCancel(ctx) // End must run also after a signal that ends the job
	number, err := strconv.Atoi(e.get("DDPBATCH_ATTEMPT"))
	if err != nil {
		return fmt.Errorf("read DDPBATCH_ATTEMPT: %w", err)
	}
	a := &Attempt{
		Env: e, Run: run, Number: number, JobID: e.jobID(), Signals: end.Signals, unstarted: end.Unstarted,
		failure: redact.Text(end.Failure),
	}
	a.Scheduler = &slurmScheduler{a}
	if a.Link, err = LinkOf(run.Whole(), a.JobID); err != nil {
		e.Log.Warn("cannot find out whether the job is a link of a chain", "error", err)
	}
	w, acted := a.Decide(ctx, end.Code)
	if acted != nil && w.Verdict.Cause == "" { // for launch.on_end
		w.Verdict = rundir.Verdict{
			Attempt: a.Number, JobID: a.JobID, Cause: causeUnknown, FirstRank: -1, Exit: end.Code, Time: e.Now(),
			Message: fmt.Sprintf("cannot find out how the attempt ended: %v", acted),
		}
	}
	if acted == nil && w.Decision.Action != recovery.Finish {
		fmt.Fprintf(e.Err, "ddpbatch: attempt %d: %s\n", w.Verdict.Attempt, w.Verdict.Message)
		w, acted = a.Act(ctx, w)
	}
	err = a.reportWhatFollows(ctx, w, acted, end.Code)
	if a.IsLast(w, acted) {
		a.OnEnd(ctx, w, codeOf(err))
	}
	return err
}

// codeOf returns the exit code of the batch script.
func codeOf(err error) int {
	coded, ok := errors.AsType[*exit.Error](err)
	switch {
	case err == nil:
		return 0
	case ok:
		return coded.Code
	}
	return exit.Failed
}

// reportWhatFollows writes to the job's log what follows, and cancels later links if the run is over. Its error carries the script's exit
// code; code is srun's.
func (a *Attempt) reportWhatFollows(ctx context.Context, w Ending, err error, code int) error {
	e, run := a.Env, a.Run
	resume := submission.ResumeHint(run)
	switch {
	case errors.Is(err, errNotRequeued):
		return &exit.Error{Code: exit.Requeue, Err: fmt.Errorf("%w; %s", err, resume)}
	case errors.Is(err, rundir.ErrSuperseded):
		return err
	case w.Decision.Action == recovery.GiveUp:
		if recovery.CauseOf(w.Verdict) == recovery.Timeout && w.Verdict.Advice != "" { // no agent has printed it
			fmt.Fprintf(e.Err, "ddpbatch: %s\n", w.Verdict.Advice)
		}
		if w.Verdict.Final || w.Verdict.Trace != "" { // a fault of the job or of its program
			resume = submission.CorrectHint(run)
		}
		fmt.Fprintf(e.Err, "ddpbatch: not started again: %s; %s\n", w.Decision.Why, resume)
		a.Link.cancelLater(ctx, e, "the run is given up")
		return &exit.Error{Code: exit.GivenUp(w.Verdict.Exit), Err: err}
	case err != nil:
		return &exit.Error{Code: max(code, exit.Failed), Err: err}
	case w.Decision.Action == recovery.EndLink:
		fmt.Fprintf(e.Err, "ddpbatch: %s\n", a.Link.ends(w.Decision.Why, run))
		return &exit.Error{Code: exit.Requeue}
	case w.Decision.Action == recovery.Requeue:
		fmt.Fprintf(e.Err, "ddpbatch: requeued: %s\n", w.Decision.Why)
		return &exit.Error{Code: exit.Requeue}
	}
	a.Link.cancelLater(ctx, e, "the run is done")
	return nil
}

// Ending describes an attempt's end, and what follows.
type Ending struct {
	Verdict  rundir.Verdict
	Decision recovery.Decision
	Facts    Facts
	lead     time.Duration // requeue.lead
}

// Decide finds out how the attempt ended, with what the scheduler knows about the cause, and decides what follows.
func (a *Attempt) Decide(ctx context.Context, code int) (w Ending, err error) {
	if err := a.turnToNewest(); err != nil {
		return w, err
	}
	job, err := jobfile.OfRun(a.Run)
	if err != nil {
		return w, err
	}
	w.lead = job.Requeue.Lead
	if w.Verdict, err = a.end(code); err != nil {
		return w, err
	}
	if isDone(w.Verdict) {
		// If Slurm has put the job back into the queue just before its end, it starts once more and ends with 0 (`attempt begin`).
		// Then squeue and sacct say COMPLETED, and jobs that wait for this one (afterok) start.
		// If the job were removed from the queue, it would be CANCELLED.
		w.Decision.Action = recovery.Finish
		return w, nil
	}
	w.Facts = a.Scheduler.Ask(ctx, a.timeoutsLeft(w.lead).ask)
	history, err := a.Run.Ledger()
	if err != nil {
		return w, err
	}
	w.Facts.Lead = a.leadUsed(job, history, w.Verdict)
	w.Facts.Unmet, w.Facts.Resume = a.noneStarted(), submission.PlainResume(a.Run)
	if !job.Builtin() {
		w.Facts.WarnSignal = job.Launch.WarnSignal
	}
	refined := recovery.Refine(w.Verdict, w.Facts.Evidence)
	if w.Facts.ByHand != "" && recovery.CauseOf(refined) == recovery.Cancelled {
		refined.Message = w.Facts.ByHand
		if refined.Saved {
			refined.Message += "; the workers saved first"
		}
	}
	refined = a.withStep(refined)
	if err := a.amend(history, w.Verdict, refined); err != nil {
		return w, err
	}
	w.Verdict = refined
	w.Decision = known{policy: job.Policy(), history: history, verdict: w.Verdict, facts: w.Facts, link: a.Link.Number > 0}.decide()
	return w, nil
}

// leadUsed returns how long before the job's end agent 0 was to warn. Agent 0 records that in the verdict. If it has not, leadUsed computes
// it in the same way from the job's time limit, without the job's real end.
func (a *Attempt) leadUsed(job *jobfile.Job, history []rundir.Event, v rundir.Verdict) time.Duration {
	policy := job.Policy()
	switch {
	case v.LeadS > 0:
		return time.Duration(v.LeadS * float64(time.Second))
	case job.Builtin():
		return policy.Lead
	}
	lead, _ := policy.LeadFor(a.Number, history, policy.Limit)
	return lead
}

// turnToNewest sets a.Number to the newest attempt that this start of the job has begun: agents that start their workers again claim
// another attempt. If another start or job has begun a newer one, this attempt is superseded, and turnToNewest returns an error. It ignores
// attempts that were claimed but not begun: one may be about to begin elsewhere, or its agents may have ended in between.
func (a *Attempt) turnToNewest() error {
	newest, err := a.Run.NewestAttempt()
	if err != nil || newest <= a.Number {
		return err
	}
	history, err := a.Run.Ledger()
	if err != nil {
		return err
	}
	first := a.Number
	for _, event := range history {
		switch {
		case event.Event != rundir.EventBegin || event.Attempt <= first:
		case event.Job != a.JobID || event.Start != a.Env.start():
			return fmt.Errorf("attempt %d: %w (%d, of job %s)", first, rundir.ErrSuperseded, event.Attempt, event.Job)
		default:
			a.Number = max(a.Number, event.Attempt)
		}
	}
	return nil
}
