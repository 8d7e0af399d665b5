package attempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submission"
	"ddpbatch/mpi/launch/recovery"
)

// Begin claims the next attempt of a run for the batch script that begins, and returns the attempt's variables. over: the run is done
// already. It first accounts for what the job's last start has left open. Its error may carry an exit code.
func Begin(ctx context.Context, e Env, run *rundir.Dir) (environ []string, over bool, err error) {
	jobID := e.jobID()
	if err := e.NoteBegin(run, jobID); err != nil {
		return nil, false, err
	}
	if index, ok := e.Lookup("SLURM_ARRAY_TASK_ID"); ok {
		n, err := strconv.Atoi(index)
		if err != nil {
			return nil, false, fmt.Errorf("read SLURM_ARRAY_TASK_ID: %w", err)
		}
		if n, err = elementOf(e, run, n); err != nil {
			return nil, false, err
		}
		if run, err = run.Task(n); err != nil {
			return nil, false, err
		}
		// submit gave the run the id of the whole array
		if err := run.SetJobID(jobID); err != nil {
			return nil, false, err
		}
		NameElement(e, run)
	}
	link, err := LinkOf(run.Whole(), jobID)
	if err != nil {
		return nil, false, err
	}
	over, err = accountForEarlier(ctx, e, run, jobID, link)
	switch never, _ := errors.AsType[*exit.Error](err); {
	case over:
		link.cancelLater(ctx, e, "the run is done")
		return nil, true, nil
	case never != nil && never.Code == exit.Never && !errors.Is(err, errLinkRuns):
		link.cancelLater(ctx, e, "the run is given up")
		return nil, false, err
	case err != nil:
		return nil, false, err
	}
	a, err := Claim(e, run, jobID, link)
	if err != nil {
		return nil, false, err
	}
	config := askConfig(ctx, e)
	a.KillWait, a.Ports = config.KillWait, config.SrunPortRange
	return a.Environ(), false, nil
}

// elementOf is the element of the run that the job is, of Slurm's index in its array: a sweep may be submitted as several.
func elementOf(e Env, run *rundir.Dir, index int) (int, error) {
	size := run.Spec().ArraySize
	if size == 0 {
		return index, nil
	}
	offset, err := strconv.Atoi(e.get(submission.OffsetVariable))
	if err != nil || offset < 0 || offset%size != 0 || index >= size {
		return 0, fmt.Errorf("%s is %q, and index %d: the job is none of the sweep's arrays of %d elements; submit "+
			"it with \"ddpbatch resume\"",
			submission.OffsetVariable, e.get(submission.OffsetVariable), index, size)
	}
	return offset + index, nil
}

// NameElement has an element of a sweep be there by the name of its values, too. It runs without.
func NameElement(e Env, element *rundir.Dir) {
	job, err := jobfile.OfRun(element.Whole())
	if err == nil && job.Sweep != nil {
		index, _ := element.Index()
		err = element.SetName(job.Sweep.Name(index))
	}
	if err != nil {
		e.Log.Warn("the element is found by its number, and not by its values", "error", err)
	}
}

// accountForEarlier looks at what came before in the run: a cancel, the job's last start, another link of its chain. over: the run is
// done. An error means that nothing is begun.
func accountForEarlier(ctx context.Context, e Env, run *rundir.Dir, jobID string, link Link) (over bool, err error) {
	if err := refuseCancelled(e, run, jobID); err != nil {
		return false, err
	}
	if e.start() > 0 {
		if over, err := accountForLast(ctx, e, run, jobID); over || err != nil {
			return over, err
		}
	}
	if link.Number == 0 {
		return false, nil
	}
	return link.accountForOther(ctx, e, run)
}

// refuseCancelled ends a job that a person has cancelled while it waited, where scancel did not reach the controller.
func refuseCancelled(e Env, run *rundir.Dir, jobID string) error {
	history, err := run.Ledger()
	if err != nil {
		return err
	}
	if !recovery.WasCancelled(append(history, rundir.Event{Event: rundir.EventBegin, Job: jobID})) {
		return nil
	}
	return refuse(e, run, rundir.Event{Job: jobID, Detail: JobCancelled})
}

// refuse gives the run up where its job begins again. The returned error says why, which is the detail of event.
func refuse(e Env, run *rundir.Dir, event rundir.Event) error {
	event.Time, event.Event = e.Now(), rundir.EventGiveUp
	return &exit.Error{Code: exit.Never,
		Err: errors.Join(fmt.Errorf("%s; %s", event.Detail, submission.ResumeHint(run)), run.Append(event))}
}

// accountForLast accounts for what the job's last start has left open, when Slurm has started it again. Where the batch script lived to the
// end, the ledger says that it was requeued; or that the run was given up, and then it was a person who requeued it. Where
// it died with its node, nobody has counted that yet: a run that kills its nodes must not go on for ever. over tells that the run is done.
func accountForLast(ctx context.Context, e Env, run *rundir.Dir, jobID string) (over bool, err error) {
	history, err := run.Ledger()
	if err != nil {
		return false, err
	}
	last, ok := lastBegin(history)
	if !ok || last.Job != jobID || last.Start >= e.start() {
		return false, nil
	}
	for _, event := range slices.Backward(history) {
		switch event.Event {
		case rundir.EventRequeue, rundir.EventLinkEnd:
			return false, nil
		case rundir.EventGiveUp, rundir.EventRefused:
			if requeuedLate(ctx, e, history, jobID) {
				const why = "Slurm has put the job back into the queue, as it was preempted before; the run had ended by then"
				return false, refuse(e, run, rundir.Event{Attempt: last.Attempt, Cause: event.Cause, Detail: why})
			}
			return false, run.Append(rundir.Event{
				Time: e.Now(), Event: rundir.EventResume, Job: jobID, Detail: "started again by Slurm (scontrol requeue)",
			})
		case rundir.EventBegin:
			return (&Attempt{Env: e, Run: run, Number: event.Attempt, JobID: jobID}).accountForLost(history)
		}
	}
	return false, nil
}

// requeuedLate reports whether Slurm itself, and not a person, has started the job of a run that was given up. Since 24.05 Slurm
// remembers that it preempted a job with a grace time (slurmctld, GRACE_PREEMPT). When the batch script ends, it puts the job back into
// the queue, even if the job was requeued and has run again since. BatchFlag counts these requeues, and not those of a person's scontrol
// requeue. If Slurm does not answer, the result is true: the run was given up, so nothing is run.
func requeuedLate(ctx context.Context, e Env, history []rundir.Event, jobID string) bool {
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
	facts, err := e.Slurm.Facts(ctx, jobID)
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

// accountForLost accounts for an attempt whose batch script did not live to do so. Slurm has started the job again already, whatever
// requeue.on names: what counts are budget and lack of progress. over tells that there is nothing left to do.
func (a *Attempt) accountForLost(history []rundir.Event) (over bool, err error) {
	job, err := jobfile.OfRun(a.Run)
	if err != nil {
		return false, err
	}
	read, ok, err := a.readVerdict(exit.Failed)
	if err != nil {
		return false, err
	}
	before := recovery.Refine(read, recovery.Evidence{Now: a.Env.Now(), Asked: true, Requeued: true})
	if !ok {
		before = rundir.Verdict{
			Attempt: a.Number, JobID: a.JobID, Cause: string(recovery.Node), FirstRank: -1, Exit: exit.Failed, Time: a.lastSign(history),
			Message: "Slurm started the job again, and nobody lived to say how the attempt ended: its first node was lost",
		}
	}
	k := known{policy: job.Policy(), history: history, verdict: a.withStep(before), begun: true}
	return a.follow(read, k, rundir.EventRequeue, func(string) string { return rundir.RequeuedBySlurm })
}

// follow does what follows an attempt whose batch script did not live to do so, of which read is the verdict that it left: the run is over,
// or is given up, or goes on, which an event says; detail makes that of the decision's reason.
func (a *Attempt) follow(read rundir.Verdict, k known, event string, detail func(why string) string) (over bool, err error) {
	if err := a.amend(k.history, read, k.verdict); err != nil {
		return false, err
	}
	d := k.decide()
	switch d.Action {
	case recovery.Finish:
		return true, nil
	case recovery.GiveUp:
		return false, refuse(a.Env, a.Run, rundir.Event{Attempt: a.Number, Cause: k.verdict.Cause, Detail: d.Why})
	}
	return false, a.Run.Append(rundir.Event{
		Time: a.Env.Now(), Event: event, Attempt: a.Number, Cause: string(recovery.CauseOf(k.verdict)), Detail: detail(d.Why),
	})
}

// lastSign is when the attempt is known to have lived last: between that and now the job has waited in the queue. Where it left no trace it
// did not get beyond its beginning.
func (a *Attempt) lastSign(history []rundir.Event) time.Time {
	last, err := a.Run.LastSign(a.Number)
	if err != nil {
		a.Env.Log.Warn("how long the attempt lived is not known", "error", err)
	}
	if began, _ := lastBegin(history); last.Before(began.Time) {
		return began.Time
	}
	return last
}
