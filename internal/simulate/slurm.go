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

// endAttempt is the end of the batch script: `attempt end`, with simulate itself in the place of Slurm.
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
	if byHand || a.Silent { // otherwise agent 0 has said it
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

// withdraw removes from the queue a requeued job that will not begin again, usually because the user has ended it meanwhile.
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

// playedScheduler answers as Slurm would. It need not do what it is told, because Job.Run begins the job again.
type playedScheduler struct {
	*Job
	job    context.Context // ends when the user ends the job
	script *batchScript
}

// Ask reports simulate's own end as the time limit if simulate was given one, because beginning again does not help against that.
func (p *playedScheduler) Ask(context.Context, time.Duration) attempt.Facts {
	f := attempt.Facts{Evidence: p.evidence(p.job, p.script)}
	switch {
	case !p.deadline.IsZero():
		f.Forbids = rundir.OwnDeadline
	case p.script.dead() && p.script.had(sim.TimeLimit) && p.link.Number == 0: // the next link of a chain needs no requeue
		f.Forbids = rundir.KilledAtLimit
	}
	f.ByHand = endedBy(p.job) // an agent knows only the signal that it got
	return f
}

// endedBy returns in a word how the user has ended the job of ctx, or "".
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

// evidence returns what Slurm would answer about the end of the job.
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
	case script.had(nodeFailed): // Slurm itself has requeued the job
		f.State, f.Requeued = "NODE_FAIL", true
		if s.pretend.Release == sim.Slurm2511 { // it names the node, and has one state for everything that is being ended
			f.State = "COMPLETING"
		}
	case script.had(sim.Warned) && f.EndTime.IsZero(): // the end that was announced
		f.EndTime = f.Now.Add(f.Lead)
	}
	return f
}

// nodeFailed is the event of a job with a node that has not responded for long enough.
const nodeFailed sim.Event = "node"

// batchScript simulates how a job's batch script handles signals.
type batchScript struct {
	signalFile string

	mu      sync.Mutex
	signals []string
	events  []sim.Event
	killed  bool
}

// Signal is the script's trap: on a warning it writes a file for the agents, and it records the other signals that it catches. The rules
// for job files exclude other signals.
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
		_ = os.WriteFile(b.signalFile, nil, 0o600) // if the agents do not notice the warning, the time limit ends the job
	}
}

// event records what Slurm does to the job.
func (b *batchScript) event(e sim.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

// noteFault records a fault that concerns Slurm.
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
