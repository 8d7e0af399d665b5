package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/pause"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

// maxExcluded is the longest list of nodes that is believed.
const maxExcluded = 1 << 16

// patience is for how long a controller that does not answer is asked again: it may be busy, or be started again just now.
type patience struct {
	ask     time.Duration // at first
	again   time.Duration // right before the requeue, and for what can be left out
	requeue time.Duration
}

// patienceOf: where the script got TERM, KILL may come KillWait after that, of which the workers may have used their part. Where it was
// only warned, lead after that the time limit comes.
func patienceOf(e *env, a *attempt, lead time.Duration) patience {
	p := patience{ask: time.Minute, again: 5 * time.Second, requeue: 5 * time.Minute}
	switch {
	case slices.Contains(a.signals, "TERM"):
		killWait := killWaitOf(e)
		left := lastActs(killWait)
		return patience{ask: left / 2, again: left / 6, requeue: 2 * killWait} // KILL ends it sooner if it must be
	case (slices.Contains(a.signals, "USR1") || slices.Contains(a.signals, "USR2")) && lead > 0:
		p.ask = min(p.ask, max(lead/2, p.again))
	}
	if left := slurmDeadline(e).Sub(e.Now()); left > 0 {
		p.ask, p.again, p.requeue = min(p.ask, left/2), min(p.again, left/4), min(p.requeue, left)
	}
	return p
}

// errNotRequeued is that of a requeue that was decided, and did not come about, or is not known to.
var errNotRequeued = errors.New("the job was not requeued")

// requeue has the job start again. The ledger hears of it first: Slurm's answer to the request is SIGTERM for this job's processes, and
// SIGKILL soon after. A cancel in the meantime is the last word.
func (a *attempt) requeue(ctx context.Context, e *env, s scheduler, w settled) (settled, error) {
	w.verdict.Requeue = true
	w.decision.Exclude = a.excludable(ctx, e, s, w)
	if err := errors.Join(a.write(w.verdict), a.note(e, rundir.EventRequeue, w.decision, w.decision.Why)); err != nil {
		return w, err
	}
	p := patienceOf(e, a, w.lead)
	limited, cancel := context.WithTimeout(ctx, p.requeue)
	defer cancel()
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		facts := s.ask(ctx, p.again)
		if facts.Requeued { // by Slurm itself, or by a request whose answer was lost
			break
		}
		if facts.Cancelled() || a.cancelled() {
			return a.callOff(ctx, e, s, w, jobCancelled)
		}
		err := s.requeue(ctx)
		switch {
		case err == nil:
		case !unanswered(err):
			return w, a.refused(err, w.decision, a.note(e, rundir.EventRefused, w.decision, err.Error()))
		case pause.For(limited, wait) == nil:
			continue
		case a.cancelled():
			w.facts.Requeued = true // as far as is known
			return a.callOff(ctx, e, s, w, jobCancelled)
		default: // it counts, as it may have been done
			return w, fmt.Errorf("%s, but %w as far as is known: %w", w.decision.Why, errNotRequeued, err)
		}
		break
	}
	if a.cancelled() { // while Slurm was busy with the requeue, which has overtaken scancel
		w.facts.Requeued = true
		return a.callOff(ctx, e, s, w, jobCancelled)
	}
	if len(w.decision.Exclude) > 0 {
		if err := s.exclude(ctx, w.decision.Exclude); err != nil {
			e.log().Warn("the job may start on nodes that failed", "nodes", w.decision.Exclude, "error", err)
		}
	}
	return w, nil
}

// cancelled tells whether a person has asked for the end of the job by now.
func (a *attempt) cancelled() bool {
	history, err := a.run.Ledger()
	return err == nil && recovery.WasCancelled(history)
}

// callOff takes back a requeue that the ledger has heard of: most often a person has cancelled the job since then.
func (a *attempt) callOff(ctx context.Context, e *env, s scheduler, w settled, why string) (settled, error) {
	w.verdict.Requeue = false
	err := errors.Join(a.write(w.verdict), a.note(e, rundir.EventRefused, w.decision, why))
	w.decision = recovery.Decision{Action: recovery.GiveUp, Why: why}
	return w, errors.Join(err, a.giveUp(ctx, e, s, w))
}

// jobCancelled is why a cancelled job is not started again.
const jobCancelled = "the job was cancelled"

// note adds to the ledger what becomes of a requeue that was decided.
func (a *attempt) note(e *env, event string, d recovery.Decision, detail string) error {
	return a.run.Append(rundir.Event{
		Time: e.Now(), Event: event, Attempt: a.number, Cause: string(d.Cause), Nodes: d.Exclude, Detail: detail,
	})
}

// refused says that Slurm did not requeue the job.
func (a *attempt) refused(err error, d recovery.Decision, noted error) error {
	if slurm.NotRequeueable(err) {
		err = fmt.Errorf("%w: it was submitted with --no-requeue, or the site has JobRequeue=0; set slurm.requeue = true", err)
	}
	return errors.Join(fmt.Errorf("%s, but %w: %w", d.Why, errNotRequeued, err), noted)
}

// excludable is what the job excludes already, with the nodes that failed added, where the job can do without them: it would
// wait for ever otherwise. None where nothing is to be added.
func (a *attempt) excludable(ctx context.Context, e *env, s scheduler, w settled) []string {
	bad := w.decision.Exclude
	if len(bad) == 0 || !w.facts.Asked {
		return nil
	}
	nodes := slices.Clone(bad)
	if w.facts.excluded != "" {
		before, err := slurm.ExpandHostlist(w.facts.excluded, maxExcluded)
		if err != nil {
			e.log().Warn("no nodes are excluded", "error", err)
			return nil
		}
		nodes = append(before, nodes...)
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	if err := s.spares(ctx, nodes); err != nil {
		why := "the job cannot do without the nodes that failed: they are not excluded"
		if unanswered(err) {
			why = "Slurm does not say whether the job can do without the nodes that failed: they are not excluded"
		}
		e.log().Warn(why, "nodes", strings.Join(bad, ","), "error", err)
		return nil
	}
	return nodes
}
