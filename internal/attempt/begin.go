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

// Begin claims the next attempt of a run for a batch script that begins, and returns the attempt's variables. over reports whether the run
// is done already. Begin first records what the job's last start has left unrecorded. Its error may carry an exit code.
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
		// submit recorded the id of the whole array
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

// elementOf returns the number of the run's element that the job is, for its index in Slurm's array. The two differ if a sweep was
// submitted as several arrays.
func elementOf(e Env, run *rundir.Dir, index int) (int, error) {
	size := run.Spec().ArraySize
	if size == 0 {
		return index, nil
	}
	offset, err := strconv.Atoi(e.get(submission.OffsetVariable))
	if err != nil || offset < 0 || offset%size != 0 || index >= size {
		return 0, fmt.Errorf("%s is %q and the index is %d: the job does not belong to the sweep's arrays of %d elements; submit "+
			"it with \"ddpbatch resume\"",
			submission.OffsetVariable, e.get(submission.OffsetVariable), index, size)
	}
	return offset + index, nil
}

// NameElement makes an element of a sweep available also by the name of its values. An error is only logged, as the element runs without.
func NameElement(e Env, element *rundir.Dir) {
	job, err := jobfile.OfRun(element.Whole())
	if err == nil && job.Sweep != nil {
		index, _ := element.Index()
		err = element.SetName(job.Sweep.Name(index))
	}
	if err != nil {
		e.Log.Warn("the element can be found only by its number, not by its values", "error", err)
	}
}

// accountForEarlier handles what came before in the run: a cancel, the job's last start, another link of its chain. over reports whether
// the run is done. If there is an error, no attempt begins.
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

// refuseCancelled ends a job that a person canceled while it was pending, if scancel did not reach the controller.
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

// refuse gives the run up as its job begins again. The returned error says why: it has the detail of event.
func refuse(e Env, run *rundir.Dir, event rundir.Event) error {
	event.Time, event.Event = e.Now(), rundir.EventGiveUp
	return &exit.Error{Code: exit.Never,
		Err: errors.Join(fmt.Errorf("%s; %s", event.Detail, submission.ResumeHint(run)), run.Append(event))}
}

// accountForLast records what the job's last start has left unrecorded, when Slurm has started the job again. If the batch script lived to
// its end, the ledger says that the job was requeued, or that the run was given up; in the latter case a person has requeued the job. If
// the batch script died with its node, that start must be counted now: a run that kills its nodes must not go on forever. over reports
// whether the run is done.
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
// the queue, even if the job was requeued and has run again since. BatchFlag counts these requeues, but not those by a person's scontrol
// requeue. If Slurm does not answer, the result is true: the run was given up, so it must not run.
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
	if !preempted || ends != 1 { // after two ends Slurm's own start was the one in between
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, questionLimit)
	defer cancel()
	facts, err := e.Slurm.Facts(ctx, jobID)
	return err != nil || facts.BatchFlag > 1
}

// lastBegin returns the event of the newest attempt's beginning.
func lastBegin(history []rundir.Event) (rundir.Event, bool) {
	for _, event := range slices.Backward(history) {
		if event.Event == rundir.EventBegin {
			return event, true
		}
	}
	return rundir.Event{}, false
}

// accountForLost records the end of an attempt whose batch script died before it could. Slurm has started the job again already, whatever
// requeue.on names, so only the budget and a lack of progress count. over reports whether the run is done.
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
			Message: "Slurm started the job again, and no process was left to record how the attempt ended: its first node was lost",
		}
	}
	k := known{policy: job.Policy(), history: history, verdict: a.withStep(before), begun: true}
	return a.follow(read, k, rundir.EventRequeue, func(string) string { return rundir.RequeuedBySlurm })
}

// follow decides what follows an attempt whose batch script died before it could, and records it. read is the verdict that the attempt
// left. The run is over, or is given up, or goes on; in the last case follow appends event to the ledger, with a detail that detail makes
// from the decision's reason.
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

// lastSign returns the last time at which the attempt is known to have been alive. After that the job waited in the queue. If the attempt
// left nothing, lastSign returns when it began.
func (a *Attempt) lastSign(history []rundir.Event) time.Time {
	last, err := a.Run.LastSign(a.Number)
	if err != nil {
		a.Env.Log.Warn("cannot find out how long the attempt ran", "error", err)
	}
	if began, _ := lastBegin(history); last.Before(began.Time) {
		return began.Time
	}
	return last
}
