package simulate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"ddpbatch/internal/attempt"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
	"ddpbatch/slurm/sim"
)

// endAttempt is the end of the batch script: `attempt end`, with simulate itself in Slurm's place.
func (s *Job) endAttempt(ctx context.Context, a *attempt.Attempt, code int, script *batchScript) (attempt.Ending, error) {
	a.Signals = script.received()
	a.Scheduler = &playedScheduler{s, ctx, script}
	w, err := a.Decide(ctx, code)
	if err == nil {
		w, err = a.Act(ctx, w)
	}
	if err != nil {
		return w, err
	}
	byHand := w.Facts.ByHand != "" && recovery.CauseOf(w.Verdict) == recovery.Cancelled
	if byHand || a.Silent { // or else agent 0 has said it
		s.report("%s", w.Verdict.Message)
	}
	if w.Decision.Action == recovery.GiveUp && !byHand {
		s.report("not requeued: %s", w.Decision.Why)
	}
	if w.Decision.Action == recovery.EndLink && a.Link.Last() {
		s.report("%s ended (%s); it was the last", a.Link, w.Decision.Why)
	}
	return w, nil
}

// withdraw takes the job out of the queue, which it was put back into, and which it will not leave: mostly a person has ended it meanwhile.
func (s *Job) withdraw(ctx context.Context, w attempt.Ending, why error) (attempt.Ending, error) {
	reason := why.Error()
	if w.Facts.ByHand = endedBy(ctx); w.Facts.ByHand != "" {
		w.Verdict.Cause = string(recovery.Cancelled)
		w.Verdict.Message = fmt.Sprintf("%s before it began again; %s", w.Facts.ByHand, w.Verdict.Message)
		s.report("%s", w.Verdict.Message)
		reason, why = attempt.JobCancelled, nil
	}
	w, err := s.newest.CallOff(ctx, w, reason)
	return w, errors.Join(why, err)
}

// playedScheduler answers as Slurm would. What it is told to do is done by who runs the job: run begins it again.
type playedScheduler struct {
	*Job
	job    context.Context // ends when a person ends the job
	script *batchScript
}

// Ask has simulate's own end for a time limit where it was told one: that does not go away by beginning again.
func (p *playedScheduler) Ask(context.Context, time.Duration) attempt.Facts {
	f := attempt.Facts{Evidence: p.evidence(p.job, p.script)}
	switch {
	case !p.deadline.IsZero():
		f.Forbids = rundir.OwnDeadline
	case p.script.dead() && p.script.had(sim.TimeLimit) && p.link.Number == 0: // the next link of a chain need not be asked for
		f.Forbids = rundir.KilledAtLimit
	}
	f.ByHand = endedBy(p.job) // an agent knows only of the signal that it got
	return f
}

// endedBy is how a person has ended the job that ctx is for, in a word; "": nobody has.
func endedBy(ctx context.Context) string {
	switch stopped, ok := errors.AsType[launch.SignalError](context.Cause(ctx)); {
	case !ok:
		return ""
	case stopped.Sig == syscall.SIGINT:
		return "interrupted"
	}
	return "cancelled"
}

func (p *playedScheduler) Requeue(context.Context) error           { return nil }
func (p *playedScheduler) Spares(context.Context, []string) error  { return nil }
func (p *playedScheduler) Exclude(context.Context, []string) error { return nil }
func (p *playedScheduler) Cancel(context.Context) error            { return nil }

// evidence is what Slurm would answer when it is asked what becomes of the job.
func (s *Job) evidence(ctx context.Context, script *batchScript) recovery.Evidence {
	f := recovery.Evidence{
		Signals: script.received(), Now: s.e.Now(), Lead: s.job.Requeue.Lead, EndTime: s.allocation.EndTime,
		Asked: true, State: "RUNNING", Preempted: script.had(sim.Preempted), Down: s.down(),
	}
	switch {
	case script.had(sim.TimeLimit):
		f.State, f.Reason = "COMPLETING", "TimeLimit"
	case script.had(sim.Cancelled) || endedBy(ctx) != "":
		f.State = "COMPLETING"
	case script.had(nodeFailed): // Slurm itself has put the job back into the queue
		f.State, f.Requeued = "NODE_FAIL", true
		if s.pretend.Release == sim.Slurm2511 { // it names the node, and has one state for all that is being ended
			f.State = "COMPLETING"
		}
	case script.had(sim.Warned) && f.EndTime.IsZero(): // the end that was announced
		f.EndTime = f.Now.Add(f.Lead)
	}
	return f
}

// nodeFailed is what becomes of a job whose node does not answer for long enough.
const nodeFailed sim.Event = "node"

// batchScript is the part of a job's batch script that signals concern.
type batchScript struct {
	signalFile string

	mu      sync.Mutex
	signals []string
	events  []sim.Event
	killed  bool
}

// Signal is the script's trap: a warning makes it write a file for the agents, and of the others that it catches it takes note. The job
// file's rules let no other signal reach it.
func (b *batchScript) Signal(sig syscall.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch sig {
	case syscall.SIGKILL:
		b.killed = true
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
		b.signals = append(b.signals, slurm.Warning{Signal: sig}.Name())
	case syscall.SIGUSR1, syscall.SIGUSR2:
		b.signals = append(b.signals, slurm.Warning{Signal: sig}.Name())
		_ = os.WriteFile(b.signalFile, nil, 0o600) // a warning that nobody hears is what the time limit is for
	}
}

// event takes note of what Slurm does to the job.
func (b *batchScript) event(e sim.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

// noteFault takes note of a fault that is something of Slurm's.
func (b *batchScript) noteFault(f sim.Fault) {
	switch f.Kind {
	case sim.Term:
		b.event(sim.Preempted)
	case sim.Timeout:
		b.event(sim.TimeLimit)
	case sim.Warn:
		b.event(sim.Warned)
	}
}

func (b *batchScript) had(e sim.Event) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.events, e)
}

func (b *batchScript) received() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.signals)
}

func (b *batchScript) dead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.killed
}
