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

// Act does what was decided. What it returns tells what became of that.
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

// giveUp leaves the run as it is. A job that Slurm has put back into the queue by itself is taken out of it.
func (a *Attempt) giveUp(ctx context.Context, w Ending) error {
	err := a.Run.Append(rundir.Event{
		Time: a.Env.Now(), Event: rundir.EventGiveUp, Attempt: a.Number, Cause: w.Verdict.Cause, Detail: w.Decision.Why,
	})
	if w.Facts.Requeued {
		err = errors.Join(err, a.Scheduler.Cancel(ctx))
	}
	return err
}

// maxExcluded is the longest list of nodes that is believed.
const maxExcluded = 1 << 16

// timeouts are for how long a controller that does not answer is asked again: it may be busy, or be started again just now.
type timeouts struct {
	ask     time.Duration // at first
	again   time.Duration // right before the requeue, and for what can be left out
	requeue time.Duration
}

// timeoutsLeft returns how long Slurm may be asked before this script is killed. After TERM, KILL may come within KillWait, of which the
// workers may have used their part. After a warning alone, the time limit comes within lead.
func (a *Attempt) timeoutsLeft(lead time.Duration) timeouts {
	t := timeouts{ask: time.Minute, again: 5 * time.Second, requeue: 5 * time.Minute}
	switch {
	case slices.Contains(a.Signals, "TERM"):
		killWait := killWaitOf(a.Env.Lookup)
		left := afterWorkers(killWait)
		return timeouts{ask: left / 2, again: left / 6, requeue: 2 * killWait} // KILL ends it sooner if it must be
	case (slices.Contains(a.Signals, "USR1") || slices.Contains(a.Signals, "USR2")) && lead > 0:
		t.ask = min(t.ask, max(lead/2, t.again))
	}
	if left := jobenv.SlurmDeadline(a.Env.Lookup).Sub(a.Env.Now()); left > 0 {
		t.ask, t.again, t.requeue = min(t.ask, left/2), min(t.again, left/4), min(t.requeue, left)
	}
	return t
}

// errNotRequeued is that of a requeue that was decided, and did not come about, or is not known to.
var errNotRequeued = errors.New("the job was not requeued")

// requeue has the job start again. The ledger hears of it first: Slurm's answer to the request is SIGTERM for this job's processes, and
// SIGKILL soon after. A cancel in the meantime is the last word.
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
			w.Facts.Requeued = true // as far as is known
			return a.CallOff(ctx, w, JobCancelled)
		default: // it counts, as it may have been done
			return w, fmt.Errorf("%s, but %w as far as is known: %w", w.Decision.Why, errNotRequeued, err)
		}
		break
	}
	if a.cancelled() { // while Slurm was busy with the requeue, which has overtaken scancel
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

// cancelled reports whether a person has asked for the end of the job by now.
func (a *Attempt) cancelled() bool {
	history, err := a.Run.Ledger()
	return err == nil && recovery.WasCancelled(history)
}

// CallOff takes back a requeue that the ledger has heard of, or the next link that was to go on: most often a person has cancelled the job
// since then.
func (a *Attempt) CallOff(ctx context.Context, w Ending, why string) (Ending, error) {
	w.Verdict.Requeue = false
	err := a.write(w.Verdict)
	if w.Decision.Action == recovery.Requeue {
		err = errors.Join(err, a.note(rundir.EventRefused, w.Decision, why))
	}
	w.Decision = recovery.Decision{Action: recovery.GiveUp, Why: why}
	return w, errors.Join(err, a.giveUp(ctx, w))
}

// note adds to the ledger what becomes of a requeue that was decided.
func (a *Attempt) note(event string, d recovery.Decision, detail string) error {
	return a.Run.Append(rundir.Event{
		Time: a.Env.Now(), Event: event, Attempt: a.Number, Cause: string(d.Cause), Nodes: d.Exclude, Detail: detail,
	})
}

// refused says that Slurm did not requeue the job.
func (a *Attempt) refused(err error, d recovery.Decision, noted error) error {
	if slurm.NotRequeueable(err) {
		err = fmt.Errorf("%w: it was submitted with --no-requeue, or the site has JobRequeue=0; set slurm.requeue = true", err)
	}
	return errors.Join(fmt.Errorf("%s, but %w: %w", d.Why, errNotRequeued, err), noted)
}

// excludable is what the job excludes already, with the nodes that failed added, where the job can do without them: it would
// wait for ever otherwise. None where nothing is to be added.
func (a *Attempt) excludable(ctx context.Context, w Ending) []string {
	bad := w.Decision.Exclude
	if len(bad) == 0 || !w.Facts.Asked {
		return nil
	}
	nodes, err := withExcluded(a.Run, bad, w.Facts.excluded)
	if err != nil {
		a.Env.Log.Warn("no nodes are excluded", "error", err)
		return nil
	}
	if err := a.Scheduler.Spares(ctx, nodes); err != nil {
		why := "the job cannot do without the nodes that failed: they are not excluded"
		if unanswered(err) {
			why = "Slurm does not say whether the job can do without the nodes that failed: they are not excluded"
		}
		a.Env.Log.Warn(why, "nodes", strings.Join(bad, ","), "error", err)
		return nil
	}
	return nodes
}

// withExcluded are nodes, and those of a folded list that a job excludes already ("": none), sorted, each once. Of that list those are left
// out that Slurm drained earlier in the run: a maintenance that takes node after node would leave none in the end.
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
