package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submit"
	"ddpbatch/mpi/launch/recovery"
)

// srunEnd is what the batch script knows of srun's end.
type srunEnd struct {
	code      int
	signals   []string // that the script got
	unstarted bool     // srun was not called, as they came before
	failure   string   // of the setup, so that srun was not called; "": none
}

// runAttemptEnd is the batch script's last act: it settles how the newest attempt of this start ended, and what follows. Its error
// carries the exit code.
func runAttemptEnd(ctx context.Context, e *env, path string, end srunEnd) error {
	ctx = context.WithoutCancel(ctx) // a signal that ends the job is what this is for
	run, err := rundir.OpenOwn(e.abs(path))
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(e.get("DDPBATCH_ATTEMPT"))
	if err != nil {
		return fmt.Errorf("read DDPBATCH_ATTEMPT: %w", err)
	}
	client, _ := newSlurmClient(e)
	a := &attempt{
		run: run, number: number, jobID: jobIDOf(e), signals: end.signals, unstarted: end.unstarted, failure: redact.Text(end.failure),
	}
	s := &slurmScheduler{e: e, a: a, client: client}
	w, err := a.settle(ctx, e, s, end.code)
	if err == nil && w.decision.Action != recovery.Finish {
		fmt.Fprintf(e.Err, "ddpbatch: attempt %d: %s\n", w.verdict.Attempt, w.verdict.Message)
		w, err = a.act(ctx, e, s, w)
	}
	resume := submit.ResumeHint(run)
	switch {
	case errors.Is(err, errNotRequeued):
		return &codeError{code: exitRequeue, err: fmt.Errorf("%w; %s", err, resume)}
	case errors.Is(err, rundir.ErrSuperseded):
		return err
	case w.decision.Action == recovery.GiveUp:
		fmt.Fprintf(e.Err, "ddpbatch: not started again: %s; %s\n", w.decision.Why, resume)
		return &codeError{code: givenUpCode(w.verdict.Exit), err: err}
	case err != nil:
		return &codeError{code: max(end.code, exitFailed), err: err}
	case w.decision.Action == recovery.Requeue:
		fmt.Fprintf(e.Err, "ddpbatch: requeued: %s\n", w.decision.Why)
		return &codeError{code: exitRequeue}
	}
	return nil
}

// givenUpCode is what the job of a run that is given up exits with: as its worker did, but for a wish that is not granted.
func givenUpCode(exit int) int {
	if exit == exitRequeue {
		return exitNever
	}
	return max(exit, exitFailed)
}

// settled is an attempt's end, and what is to follow.
type settled struct {
	verdict  rundir.Verdict
	decision recovery.Decision
	facts    endFacts
	lead     time.Duration // requeue.lead
}

// settle tells how the attempt ended, with the cause that the scheduler tells, and decides what follows.
func (a *attempt) settle(ctx context.Context, e *env, s scheduler, code int) (w settled, err error) {
	if err := a.follow(e); err != nil {
		return w, err
	}
	job, err := jobOf(a.run)
	if err != nil {
		return w, err
	}
	w.lead = job.Requeue.Lead
	if w.verdict, err = a.end(e, code); err != nil {
		return w, err
	}
	if w.verdict.Exit == 0 && w.verdict.Cause == string(recovery.Done) {
		// Where Slurm has put the job back into the queue just before its end, it starts once more and ends with 0 (`attempt begin`): squeue
		// and sacct then say COMPLETED, and jobs that wait for this one (afterok) start. Taken out of the queue it would be CANCELLED.
		w.decision.Action = recovery.Finish
		return w, nil
	}
	w.facts = s.ask(ctx, patienceOf(e, a, w.lead).ask)
	history, err := a.run.Ledger()
	if err != nil {
		return w, err
	}
	policy := job.Policy()
	w.facts.Lead = a.leadUsed(job, history, w.verdict)
	w.facts.Unmet = a.unmet()
	told := recovery.Refine(w.verdict, w.facts.Evidence)
	if w.facts.byHand != "" && recovery.CauseOf(told) == recovery.Cancelled {
		told.Message = w.facts.byHand
		if told.Saved {
			told.Message += "; the workers saved first"
		}
	}
	told = a.withStep(e, told)
	if err := a.amend(history, w.verdict, told); err != nil {
		return w, err
	}
	w.verdict = told
	w.decision = recovery.Decide(policy, history, w.verdict, false, 0)
	if w.decision.Action == recovery.Requeue {
		switch {
		case w.facts.Cancelled():
			w.decision = recovery.Decision{Action: recovery.GiveUp, Why: jobCancelled}
		case w.facts.forbids != "":
			w.decision = recovery.Decision{Action: recovery.GiveUp, Why: w.facts.forbids}
		}
	}
	return w, nil
}

// leadUsed is how long before the job's end agent 0 was to warn, as it has said itself. Where it has not, it is the same reckoning without the
// job's real end.
func (a *attempt) leadUsed(job *jobfile.Job, history []rundir.Event, v rundir.Verdict) time.Duration {
	policy := job.Policy()
	switch {
	case v.LeadS > 0:
		return time.Duration(v.LeadS * float64(time.Second))
	case job.Builtin():
		return policy.Lead
	}
	lead, _ := policy.LeadFor(a.number, history, policy.Limit)
	return lead
}

// act does what was decided. What it returns tells what became of that.
func (a *attempt) act(ctx context.Context, e *env, s scheduler, w settled) (settled, error) {
	switch w.decision.Action {
	case recovery.Requeue:
		return a.requeue(ctx, e, s, w)
	case recovery.GiveUp:
		return w, a.giveUp(ctx, e, s, w)
	}
	return w, nil
}

// giveUp leaves the run as it is. A job that Slurm has put back into the queue by itself is taken out of it.
func (a *attempt) giveUp(ctx context.Context, e *env, s scheduler, w settled) error {
	err := a.run.Append(rundir.Event{Time: e.Now(), Event: rundir.EventGiveUp, Attempt: a.number, Cause: w.verdict.Cause, Detail: w.decision.Why})
	if w.facts.Requeued {
		err = errors.Join(err, s.cancel(ctx))
	}
	return err
}

// follow turns to the newest attempt that this start of the job has begun: agents that start their workers again claim
// another. Where somebody else has begun one, this script is a zombie, and has nothing to say. An attempt that was claimed and not
// begun is nobody's: of one that is about to begin elsewhere, or of agents that ended in between.
func (a *attempt) follow(e *env) error {
	newest, err := a.run.NewestAttempt()
	if err != nil || newest <= a.number {
		return err
	}
	history, err := a.run.Ledger()
	if err != nil {
		return err
	}
	first := a.number
	for _, event := range history {
		switch {
		case event.Event != rundir.EventBegin || event.Attempt <= first:
		case event.Job != a.jobID || event.Start != startOf(e):
			return fmt.Errorf("attempt %d: %w (%d, of job %s)", first, rundir.ErrSuperseded, event.Attempt, event.Job)
		default:
			a.number = max(a.number, event.Attempt)
		}
	}
	return nil
}
