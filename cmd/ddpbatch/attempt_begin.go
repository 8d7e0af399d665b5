package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submit"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

func runAttemptBegin(ctx context.Context, e *env, path string) error {
	run, err := rundir.OpenOwn(e.abs(path))
	if err != nil {
		return err
	}
	jobID := jobIDOf(e)
	if err := e.submitEnv().NoteBegin(run, jobID); err != nil {
		return err
	}
	if index, ok := e.lookup("SLURM_ARRAY_TASK_ID"); ok {
		n, err := strconv.Atoi(index)
		if err != nil {
			return fmt.Errorf("read SLURM_ARRAY_TASK_ID: %w", err)
		}
		if run, err = run.Task(n); err != nil {
			return err
		}
		// submit gave the run the id of the whole array
		if err := run.SetJobID(jobID); err != nil {
			return err
		}
	}
	if err := refuseCancelled(e, run, jobID); err != nil {
		return err
	}
	if startOf(e) > 0 {
		over, err := accountForLast(ctx, e, run, jobID)
		if err != nil {
			return err
		}
		if over {
			fmt.Fprintf(e.Err, "ddpbatch: the run is done, and its job was started again: there is nothing to do\n")
			fmt.Fprintln(e.Out, "exit 0")
			return nil
		}
	}
	a, err := beginAttempt(e, run, jobID)
	if err != nil {
		return err
	}
	a.killWait = askKillWait(ctx, e)
	for _, pair := range a.environ() {
		fmt.Fprintln(e.Out, "export "+slurm.ShellAssign(pair))
	}
	return nil
}

// refuseCancelled ends a job that a person has cancelled while it waited, where scancel did not reach the controller.
func refuseCancelled(e *env, run *rundir.Dir, jobID string) error {
	history, err := run.Ledger()
	if err != nil {
		return err
	}
	if !recovery.WasCancelled(append(history, rundir.Event{Event: rundir.EventBegin, Job: jobID})) {
		return nil
	}
	err = run.Append(rundir.Event{Time: e.Now(), Event: rundir.EventGiveUp, Job: jobID, Detail: jobCancelled})
	return &codeError{code: exitNever, err: errors.Join(fmt.Errorf("%s; %s", jobCancelled, submit.ResumeHint(run)), err)}
}

// accountForLast settles what the job's last start has left open, when Slurm has started it again. Where the batch script lived to the
// end, the ledger says that it was requeued; or that the run was given up, and then it was a person who requeued it. Where
// it died with its node, nobody has counted that yet: a run that kills its nodes must not go on for ever. over tells that the run is done.
func accountForLast(ctx context.Context, e *env, run *rundir.Dir, jobID string) (over bool, err error) {
	history, err := run.Ledger()
	if err != nil {
		return false, err
	}
	last, ok := lastBegin(history)
	if !ok || last.Job != jobID || last.Start >= startOf(e) {
		return false, nil
	}
	for _, event := range slices.Backward(history) {
		switch event.Event {
		case rundir.EventRequeue:
			return false, nil
		case rundir.EventGiveUp, rundir.EventRefused:
			if requeuedLate(ctx, e, history, jobID) {
				const why = "Slurm has put the job back into the queue, as it was preempted before; the run had ended by then"
				err := run.Append(rundir.Event{
					Time: e.Now(), Event: rundir.EventGiveUp, Attempt: last.Attempt, Cause: event.Cause, Detail: why,
				})
				return false, &codeError{code: exitNever, err: errors.Join(fmt.Errorf("%s; %s", why, submit.ResumeHint(run)), err)}
			}
			return false, run.Append(rundir.Event{
				Time: e.Now(), Event: rundir.EventResume, Job: jobID, Detail: "started again by Slurm (scontrol requeue)",
			})
		case rundir.EventBegin:
			return forsaken(e, &attempt{run: run, number: event.Attempt, jobID: jobID}, history)
		}
	}
	return false, nil
}

// requeuedLate reports whether Slurm itself, and not a person, has started the job of a run that was given up. Since 24.05 Slurm
// remembers that it preempted a job with a grace time (slurmctld, GRACE_PREEMPT). When the batch script ends, it puts the job back into
// the queue, even if the job was requeued and has run again since. BatchFlag counts these requeues, and not those of a person's scontrol
// requeue. If Slurm does not answer, the result is true: the run was given up, so nothing is run.
func requeuedLate(ctx context.Context, e *env, history []rundir.Event, jobID string) bool {
	preempted, ends := false, 0
	for _, event := range history {
		switch {
		case event.Event == rundir.EventBegin && event.Job != jobID, event.Event == rundir.EventResume:
			preempted, ends = false, 0
		case event.Event == rundir.EventRequeue:
			preempted = preempted || event.Cause == string(recovery.Preempt)
		case event.Event == rundir.EventGiveUp:
			ends++
		}
	}
	if !preempted || ends != 1 { // after two the start that Slurm owed has been and gone
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, questionLimit)
	defer cancel()
	client, _ := newSlurmClient(e)
	facts, err := client.Facts(ctx, jobID)
	return err != nil || facts.BatchFlag > 1
}

// lastBegin is the newest attempt's beginning.
func lastBegin(history []rundir.Event) (rundir.Event, bool) {
	for _, event := range slices.Backward(history) {
		if event.Event == rundir.EventBegin {
			return event, true
		}
	}
	return rundir.Event{}, false
}

// forsaken accounts for an attempt whose batch script did not live to do so. Slurm has started the job again already, whatever
// requeue.on names: what counts are budget and patience. over tells that there is nothing left to do.
func forsaken(e *env, a *attempt, history []rundir.Event) (over bool, err error) {
	job, err := jobOf(a.run)
	if err != nil {
		return false, err
	}
	told, ok, err := a.told(e, exitFailed)
	if err != nil {
		return false, err
	}
	before := recovery.Refine(told, recovery.Evidence{Now: e.Now(), Asked: true, Requeued: true})
	if !ok {
		before = rundir.Verdict{
			Attempt: a.number, JobID: a.jobID, Cause: string(recovery.Node), FirstRank: -1, Exit: exitFailed, Time: a.lastSign(e, history),
			Message: "Slurm started the job again, and nobody lived to say how the attempt ended: its first node was lost",
		}
	}
	before = a.withStep(e, before)
	if err := a.amend(history, told, before); err != nil {
		return false, err
	}
	policy, cause := job.Policy(), recovery.CauseOf(before)
	if slices.Contains(recovery.Causes(), cause) && !policy.Names(cause) {
		policy.On = append(slices.Clone(policy.On), cause)
	}
	d := recovery.Decide(policy, history, before, false, 0)
	switch d.Action {
	case recovery.Finish:
		return true, nil
	case recovery.GiveUp:
		err = a.run.Append(rundir.Event{Time: e.Now(), Event: rundir.EventGiveUp, Attempt: a.number, Cause: before.Cause, Detail: d.Why})
		return false, &codeError{code: exitNever, err: errors.Join(fmt.Errorf("%s; %s", d.Why, submit.ResumeHint(a.run)), err)}
	}
	return false, a.run.Append(rundir.Event{
		Time: e.Now(), Event: rundir.EventRequeue, Attempt: a.number, Cause: string(cause), Detail: "by Slurm itself",
	})
}

// lastSign is when the attempt is known to have lived last: between that and now the job has waited in the queue. Where it left no trace it did
// not get beyond its beginning.
func (a *attempt) lastSign(e *env, history []rundir.Event) time.Time {
	last, err := a.run.LastSign(a.number)
	if err != nil {
		e.log().Warn("how long the attempt lived is not known", "error", err)
	}
	if began, _ := lastBegin(history); last.Before(began.Time) {
		return began.Time
	}
	return last
}
