package attempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/jobenv"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

// Act does what was decided. It returns w with what has come of the decision.
func (a *Attempt) Act(ctx context.Context, w Ending) (Ending, error) {
	switch w.Decision.Action {
	case recovery.Requeue:
		return a.requeue(ctx, w)
	case recovery.EndLink:
		return w, a.endLink(w)
	case recovery.GiveUp:
		return w, a.giveUp(ctx, w)
	}
	return w, nil
}

// giveUp records that the run is given up. It cancels the job if Slurm has put it back into the queue by itself.
func (a *Attempt) giveUp(ctx context.Context, w Ending) error {
	err := a.Run.Append(rundir.Event{
		Time: a.Env.Now(), Event: rundir.EventGiveUp, Attempt: a.Number, Cause: w.Verdict.Cause, Detail: w.Decision.Why,
	})
	if w.Facts.Requeued {
		err = errors.Join(err, a.Scheduler.Cancel(ctx))
	}
	return err
}

// maxExcluded is the longest list of excluded nodes that is accepted.
const maxExcluded = 1 << 16

// timeouts say for how long to go on asking a controller that does not answer: it may be busy, or may just be restarting.
type timeouts struct {
	ask     time.Duration // for the first question
	again   time.Duration // right before the requeue, and for optional questions
	requeue time.Duration
}

// timeoutsLeft returns how long Slurm may be asked before this script is killed. After TERM, KILL may come within KillWait, of which the
// workers may have used their part. After only a warning, the time limit comes within lead.
func (a *Attempt) timeoutsLeft(lead time.Duration) timeouts {
	t := timeouts{ask: time.Minute, again: 5 * time.Second, requeue: 5 * time.Minute}
	switch {
	case slices.Contains(a.Signals, "TERM"):
		killWait := killWaitOf(a.Env.Lookup)
		left := afterWorkers(killWait)
		return timeouts{ask: left / 2, again: left / 6, requeue: 2 * killWait} // KILL may end the last one sooner
	case (slices.Contains(a.Signals, "USR1") || slices.Contains(a.Signals, "USR2")) && lead > 0:
		t.ask = min(t.ask, max(lead/2, t.again))
	}
	if left := jobenv.SlurmDeadline(a.Env.Lookup).Sub(a.Env.Now()); left > 0 {
		t.ask, t.again, t.requeue = min(t.ask, left/2), min(t.again, left/4), min(t.requeue, left)
	}
	return t
}

// errNotRequeued means that a requeue was decided but failed, or may have failed.
var errNotRequeued = errors.New("the job was not requeued")

// requeue has Slurm start the job again. It writes to the ledger first, because Slurm answers the request with SIGTERM for this job's
// processes, and SIGKILL soon after. If the job is canceled in the meantime, it is not requeued.
func (a *Attempt) requeue(ctx context.Context, w Ending) (Ending, error) {
	w.Verdict.Requeue = true
	w.Decision.Exclude = a.excludable(ctx, w)
	if err := errors.Join(a.write(w.Verdict), a.note(rundir.EventRequeue, w.Decision, w.Decision.Why)); err != nil {
		return w, err
	}
	t := a.timeoutsLeft(w.lead)
	limited, cancel := context.WithTimeout(ctx, t.requeue)
	defer cancel()
	pauses := newPauses()
	for {
		facts := a.Scheduler.Ask(ctx, t.again)
		if facts.Requeued { // by Slurm itself, or by a request whose answer was lost
			break
		}
		if facts.Cancelled() || a.cancelled() {
			return a.CallOff(ctx, w, JobCancelled)
		}
		err := a.Scheduler.Requeue(ctx)
		switch {
		case err == nil:
		case !unanswered(err):
			return w, a.refused(err, w.Decision, a.note(rundir.EventRefused, w.Decision, err.Error()))
		case pauses.Wait(limited) == nil:
			continue
		case a.cancelled():
			w.Facts.Requeued = true // it may have been
			return a.CallOff(ctx, w, JobCancelled)
		default: // the requeue stays in the ledger and counts, as it may have been done
			return w, fmt.Errorf("%s, but %w as far as is known: %w", w.Decision.Why, errNotRequeued, err)
		}
		break
	}
	if a.cancelled() { // during the requeue, which Slurm has done after scancel
		w.Facts.Requeued = true
		return a.CallOff(ctx, w, JobCancelled)
	}
	if len(w.Decision.Exclude) > 0 {
		if err := a.Scheduler.Exclude(ctx, w.Decision.Exclude); err != nil {
			a.Env.Log.Warn("the job may start on nodes that failed", "nodes", w.Decision.Exclude, "error", err)
		}
	}
	return w, nil
}

// cancelled reports whether a person has canceled the job by now.
func (a *Attempt) cancelled() bool {
	history, err := a.Run.Ledger()
	return err == nil && recovery.WasCancelled(history)
}

// CallOff takes back a requeue that is in the ledger already, or that the next link goes on. Usually a person has canceled the job since
// the decision.
func (a *Attempt) CallOff(ctx context.Context, w Ending, why string) (Ending, error) {
	w.Verdict.Requeue = false
	err := a.write(w.Verdict)
	if w.Decision.Action == recovery.Requeue {
		err = errors.Join(err, a.note(rundir.EventRefused, w.Decision, why))
	}
	w.Decision = recovery.Decision{Action: recovery.GiveUp, Why: why}
	return w, errors.Join(err, a.giveUp(ctx, w))
}

// note adds to the ledger what becomes of a requeue that was decided: that it is requested, or that it was refused.
func (a *Attempt) note(event string, d recovery.Decision, detail string) error {
	return a.Run.Append(rundir.Event{
		Time: a.Env.Now(), Event: event, Attempt: a.Number, Cause: string(d.Cause), Nodes: d.Exclude, Detail: detail,
	})
}

// refused returns the error that says that Slurm did not requeue the job.
func (a *Attempt) refused(err error, d recovery.Decision, noted error) error {
	if slurm.NotRequeueable(err) {
		err = fmt.Errorf("%w: it was submitted with --no-requeue, or the site has JobRequeue=0; set slurm.requeue = true", err)
	}
	return errors.Join(fmt.Errorf("%s, but %w: %w", d.Why, errNotRequeued, err), noted)
}

// excludable returns the nodes that the job already excludes and those that failed. It returns nil if no nodes are to be added, or if the
// job could not start without them and would wait forever.
func (a *Attempt) excludable(ctx context.Context, w Ending) []string {
	bad := w.Decision.Exclude
	if len(bad) == 0 || !w.Facts.Asked {
		return nil
	}
	nodes, err := withExcluded(a.Run, bad, w.Facts.excluded)
	if err != nil {
		a.Env.Log.Warn("cannot exclude nodes that failed", "error", err)
		return nil
	}
	if err := a.Scheduler.Spares(ctx, nodes); err != nil {
		why := "not excluding the nodes that failed: the job cannot start without them"
		if unanswered(err) {
			why = "not excluding the nodes that failed: Slurm does not say whether the job can start without them"
		}
		a.Env.Log.Warn(why, "nodes", strings.Join(bad, ","), "error", err)
		return nil
	}
	return nodes
}

// withExcluded returns nodes and those of the host list excluded, which a job excludes already ("": none), sorted and without duplicates.
// It omits from that list the nodes that Slurm drained earlier in the run: a maintenance of one node after the other would exclude all
// nodes in the end.
func withExcluded(run *rundir.Dir, nodes []string, excluded string) ([]string, error) {
	nodes = slices.Clone(nodes)
	if excluded != "" {
		before, err := slurm.ExpandHostlist(excluded, maxExcluded)
		if err != nil {
			return nil, err
		}
		history, err := run.Ledger()
		if err != nil {
			return nil, err
		}
		drained := recovery.DrainedBefore(history)
		before = slices.DeleteFunc(before, func(name string) bool { return slices.Contains(drained, name) })
		nodes = append(before, nodes...)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}
