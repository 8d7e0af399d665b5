package supervise

import (
	"context"
	"fmt"
	"time"

	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/mpi/launch/rendezvous"
)

// deadlineBlur is within what two answers are one: they count from when they came.
const deadlineBlur = 5 * time.Second

// signalCame is why the workers are warned where a signal says so.
const signalCame = "the job was warned"

// takeSignal hands a signal to watchEnd. One that is not looked at yet says the same.
func (a *Agent) takeSignal(w warning) {
	select {
	case a.signals <- w:
	default:
	}
}

// watchEnd is agent 0's: it warns when the warning is due, some time before the job's end. That may have been moved since the job began,
// so it is asked for once more when the time has come. ddpbatch's own trainer looks at the time itself, and hears of another end when its
// next round begins. A signal warns, too, unless it is Slurm's own, which comes before the warning is due.
func (a *Agent) watchEnd() {
	w := endWatch{Agent: a, end: a.cfg.Deadline}
	if !w.end.IsZero() && a.cfg.Policy.Lead > 0 {
		w.lead, w.why = a.lead()
		a.leadUsed.Store(int64(w.lead))
	}
	for over := false; !over; {
		select {
		case asked := <-a.signals:
			over = w.signalled(asked)
		case <-a.cfg.Warn:
			over = w.signalled(warning{Host: a.cfg.Host, Why: signalCame})
		case <-w.due():
			over = w.endIsNear()
		case <-a.warned:
			return
		case <-a.ctx.Done():
			return
		}
	}
}

// endWatch is what agent 0 knows of the job's end.
type endWatch struct {
	*Agent
	end    time.Time     // zero: never, or not known
	lead   time.Duration // 0: nobody is warned but by a signal
	why    string        // the lead is another than the policy's, at the end of a sentence
	early  bool          // Slurm has signalled before the warning was due
	silent bool          // the trainer looks at this end itself
}

// due receives when the warning is due; nil: it never is.
func (w *endWatch) due() <-chan time.Time {
	if w.lead <= 0 || w.end.IsZero() || w.silent {
		return nil
	}
	return time.After(time.Until(w.end.Add(-w.lead)))
}

// endIsNear warns, and reports whether it has, unless the job ends later than it was to.
func (w *endWatch) endIsNear() bool {
	now, err := w.askDeadline()
	if err != nil {
		w.cfg.Log.Warn("whether the job's end was put off is not known", "error", err)
		now = w.end
	}
	switch {
	case now.IsZero():
		w.cfg.Log.Warn("the job has no time limit any more")
	case now.Sub(w.end) > deadlineBlur:
		w.cfg.Log.Warn("the job's end was put off", "from", w.end, "to", now)
	case w.cfg.Builtin && !w.early:
		w.silent = true
		return false
	default:
		w.Agent.warn(fmt.Sprintf("the job ends at %s%s", w.end.Format(time.TimeOnly), w.why))
		return true
	}
	w.move(now)
	return false
}

// signalled warns, and reports whether it has, unless the signal is Slurm's and early: Slurm looks at its jobs' limits twice a minute, and
// signals in time for the latest that its next look may come. What says nothing of the job's end asks for a save now: a preemption, a
// person, and whatever comes while nobody knows when the job ends.
func (w *endWatch) signalled(asked warning) bool {
	now, wait, err := w.untilDue()
	if err != nil {
		w.cfg.Log.Warn("whether the signal is early is not known, so the workers are warned now", "error", err)
	}
	if wait <= 0 {
		w.put(keyWarn, asked)
		return true
	}
	w.early, w.silent = true, false
	if moved := now.Sub(w.end).Abs(); moved > deadlineBlur {
		w.move(now)
	}
	w.cfg.Log.Warn("Slurm's signal is early: the workers are warned when it is time", "early", wait.Round(time.Second),
		"end", w.end.Format(time.TimeOnly), "lead", w.lead)
	return false
}

// untilDue tells when the job ends, and how long a signal that came just now need not be handed on.
func (w *endWatch) untilDue() (end time.Time, wait time.Duration, err error) {
	if w.lead <= 0 {
		return end, 0, nil
	}
	if end, err = w.askDeadline(); err != nil || end.IsZero() {
		return end, 0, err
	}
	wait = recovery.AfterSignal(time.Until(end), w.lead)
	if wait <= 0 || w.cfg.IsPreempted == nil {
		return end, wait, nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, rendezvous.FindingLimit)
	defer cancel()
	preempted, err := w.cfg.IsPreempted(ctx)
	if preempted || err != nil {
		return end, 0, err
	}
	return end, recovery.AfterSignal(time.Until(end), w.lead), nil
}

// move takes note of another end.
func (w *endWatch) move(to time.Time) {
	w.end, w.silent = to, false
	w.movedDeadline.Store(&to)
}

// askDeadline asks again when the job ends; where nobody can be asked, that is as it was.
func (w *endWatch) askDeadline() (time.Time, error) {
	if w.cfg.FindDeadline == nil {
		return w.end, nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, rendezvous.FindingLimit)
	defer cancel()
	return w.cfg.FindDeadline(ctx)
}

// Deadline is when the job ends, as far as is known; zero: never, or nobody knows.
func (a *Agent) Deadline() time.Time {
	if moved := a.movedDeadline.Load(); moved != nil {
		return *moved
	}
	return a.cfg.Deadline
}

// lead is how long before its end the job is warned; why, at the end of a sentence, where that is not what the policy says: attempts
// before this one have needed longer to end.
func (a *Agent) lead() (lead time.Duration, why string) {
	c := a.cfg
	if c.RunDir == nil || c.Builtin {
		return c.Policy.Lead, ""
	}
	history, err := CallFS("read the ledger", c.RunDir.Ledger)
	if err != nil {
		c.Log.Warn("how long attempts before this one took to save is not known", "error", err)
		return c.Policy.Lead, ""
	}
	lead, longest := c.Policy.LeadFor(c.Attempt, history, time.Until(c.Deadline))
	if longest > 0 {
		why = fmt.Sprintf("; warned %v before it, as an earlier attempt took %v from its warning to its end", lead.Round(time.Second),
			longest.Round(time.Second))
	}
	return lead, why
}

// leadS is lead in seconds, once agent 0 goes by it; 0: it does not.
func (a *Agent) leadS() float64 { return time.Duration(a.leadUsed.Load()).Seconds() }
