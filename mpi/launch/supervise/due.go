package supervise

import (
	"context"
	"fmt"
	"time"

	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/mpi/launch/rendezvous"
)

// deadlineBlur is the difference up to which two answers mean the same deadline: Slurm's answer is relative to when it comes.
const deadlineBlur = 5 * time.Second

// signalCame is the reason for a warning that a signal caused.
const signalCame = "the job was warned"

// takeSignal passes a signal to watchEnd, unless one is pending there already.
func (a *Agent) takeSignal(w warning) {
	select {
	case a.signals <- w:
	default:
	}
}

// watchEnd runs at agent 0. It warns when the warning is due, some time before the job's end. The end may have moved since the job
// began, so it asks for it again at that time. ddpbatch's own trainer checks the time itself, and learns of another end when its
// next round begins. A signal leads to a warning, too, unless it is Slurm's own signal and the warning is not due yet.
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

// endWatch is what agent 0 knows about the job's end.
type endWatch struct {
	*Agent
	end    time.Time     // zero: never, or unknown
	lead   time.Duration // 0: only a signal leads to a warning
	why    string        // why the lead differs from the policy's: the end of a sentence, or ""
	early  bool          // Slurm has signaled before the warning was due
	silent bool          // the trainer checks this end itself
}

// due returns a channel that receives when the warning is due, or nil if it never is.
func (w *endWatch) due() <-chan time.Time {
	if w.lead <= 0 || w.end.IsZero() || w.silent {
		return nil
	}
	return time.After(time.Until(w.end.Add(-w.lead)))
}

// endIsNear warns, unless the job's end has been put off, and reports whether it has warned.
func (w *endWatch) endIsNear() bool {
	now, err := w.askDeadline()
	if err != nil {
		w.cfg.Log.Warn("could not find out whether the job's end was put off", "error", err)
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

// signalled warns, unless the signal is Slurm's and early, and reports whether it has warned. Slurm checks its jobs' limits twice a
// minute, and signals already if the signal would be late at its next check. Any other signal asks for a save now: a preemption, a
// person's, and every signal while the job's end is not known.
func (w *endWatch) signalled(asked warning) bool {
	now, wait, err := w.untilDue()
	if err != nil {
		w.cfg.Log.Warn("could not find out whether the signal is early, so the workers are warned now", "error", err)
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

// untilDue returns when the job ends, and how long to hold back a signal that has just come.
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

// move records another end.
func (w *endWatch) move(to time.Time) {
	w.end, w.silent = to, false
	w.movedDeadline.Store(&to)
}

// askDeadline asks again when the job ends. Without FindDeadline the end is as before.
func (w *endWatch) askDeadline() (time.Time, error) {
	if w.cfg.FindDeadline == nil {
		return w.end, nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, rendezvous.FindingLimit)
	defer cancel()
	return w.cfg.FindDeadline(ctx)
}

// Deadline is when the job ends, as far as is known; zero: never, or unknown.
func (a *Agent) Deadline() time.Time {
	if moved := a.movedDeadline.Load(); moved != nil {
		return *moved
	}
	return a.cfg.Deadline
}

// lead is how long before its end the job is warned. If that differs from the policy because earlier attempts needed longer to end,
// why explains it, as the end of a sentence.
func (a *Agent) lead() (lead time.Duration, why string) {
	c := a.cfg
	if c.RunDir == nil || c.Builtin {
		return c.Policy.Lead, ""
	}
	history, err := CallFS("read the ledger", c.RunDir.Ledger)
	if err != nil {
		c.Log.Warn("could not find out how long earlier attempts took to save", "error", err)
		return c.Policy.Lead, ""
	}
	lead, longest := c.Policy.LeadFor(c.Attempt, history, time.Until(c.Deadline))
	if longest > 0 {
		why = fmt.Sprintf("; warned %v before it, because an earlier attempt took %v from its warning to its end", lead.Round(time.Second),
			longest.Round(time.Second))
	}
	return lead, why
}

// leadS is the lead that agent 0 uses, in seconds; 0: it uses none.
func (a *Agent) leadS() float64 { return time.Duration(a.leadUsed.Load()).Seconds() }
