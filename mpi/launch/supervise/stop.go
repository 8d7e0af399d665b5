package supervise

import (
	"cmp"
	"context"
	"log/slog"
	"syscall"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/proc"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/blame"
	"ddpbatch/mpi/launch/rendezvous"
)

// The agent that notices what ends a round proposes it. It becomes the round's outcome if there is none yet.

func (s *Supervisor) workerEnded(ctx context.Context, w *worker) {
	w.ended = time.Now()
	if s.alive--; s.alive == 0 {
		s.stop.next = nil // no worker is left to be killed
	}
	w.followed = s.following()
	if w.left != nil {
		s.cfg.Log.Warn("a container is left behind", "rank", w.numbers.Rank, "error", w.left)
	}
	if died := w.signal == s.cfg.WarnSignal || w.exit == exitSignal+int(s.cfg.WarnSignal); died && w.warned > 0 && !w.followed {
		// The worker, or the program that it runs as a shell, had a handler when this agent looked, but had none when the signal
		// came. So it was ending: Python removes its handlers when it finalizes. Its exit code is lost. The next attempt resumes
		// from what it saved.
		s.cfg.Log.Warn("a worker removed its handler just before the warning, and died of the signal: this counts as exit code 75",
			"rank", w.numbers.Rank)
		w.exit, w.signal = exit.Requeue, 0
	}
	s.cfg.Log.Debug("worker ended", "rank", w.numbers.Rank, "exit", w.exit, "signal", int(w.signal))
	v, bad := s.cfg.exitOutcome(w)
	known := s.mine != nil || s.outcome != nil || s.suspect != nil && !s.victim
	switch {
	case !bad || known: // a consequence
	case ctx.Err() != nil:
		s.interrupted = nil
		s.propose(s.cfg.interruptedOutcome(ctx))
	case s.isVictim(w):
		if s.suspect == nil {
			s.suspect, s.victim, s.suspectDue = &v, true, time.After(s.cfg.PeerWait)
		}
	default:
		s.suspect, s.victim = &v, false
		s.control.ends <- v
		s.considerSuspect(v)
	}
}

// following reports whether a worker that ends now may do so because it was told to. If the others agreed to stop, it was not told
// to for as long as it has the time to end by itself.
func (s *Supervisor) following() bool {
	known := cmp.Or(s.outcome, s.mine)
	return s.stop.stage > asked || known != nil && known.Cause != causeStopped
}

// isVictim reports whether a worker's last lines only say that a peer went away. Then that peer is about to end, too: if it were
// told to stop now, the reason for its failure would stay unknown.
func (s *Supervisor) isVictim(w *worker) bool {
	return w.out != nil && blame.Victim(s.death(w, proc.OutOfMemory{}))
}

// receiveFirst handles the message which worker of the run failed first.
func (s *Supervisor) receiveFirst(first rundir.Verdict) {
	if s.mine != nil || s.outcome != nil {
		return
	}
	s.suspect = &first
	s.considerSuspect(first)
	if s.suspectDue == nil {
		s.propose(first)
	}
}

// considerSuspect waits for the signal that v may be the consequence of. In any other case it stops this node's workers at once.
func (s *Supervisor) considerSuspect(v rundir.Verdict) {
	s.suspectDue = nil
	if mayBeSignalled(v) {
		s.suspectDue = time.After(rendezvous.SignalDelay)
		return
	}
	s.stopFor(v)
}

// propose makes v the run's outcome, unless there is one. It stops this node's workers at once: the other agents may be slow to
// answer, or lost.
func (s *Supervisor) propose(v rundir.Verdict) {
	s.suspectDue = nil
	if s.mine == nil && s.outcome == nil {
		s.mine = &v
		s.control.proposals <- v
	} else if v.Cause != causeCancelled {
		return // a consequence; only a signal still matters to the workers
	}
	s.stopFor(v)
}

// receiveOutcome handles the run's outcome.
func (s *Supervisor) receiveOutcome(v rundir.Verdict) {
	if s.outcome != nil {
		return
	}
	s.suspectDue, s.outcome = nil, &v
	if v.Cause != causeDone {
		s.cfg.Log.Info("the run ends", "why", v.Message)
	}
	s.stopFor(v)
	if s.cfg.Index == 0 && s.cfg.RunDir != nil && v.Cause != causeDone {
		v.WarnedS, v.LeadS = s.sinceWarning(), s.round.agent.leadS()
		cfg := s.cfg // stopFor changes it
		s.writes.Go(func() { cfg.writeEarly(v) })
	}
}

// writeEarly writes the outcome to disk, since Slurm may kill this agent before its workers' grace is over (slurm.conf, KillWait).
// Whether the run has saved is known only when all workers have ended (see account). An error is ignored: the final write will
// report it, too.
func (c Config) writeEarly(v rundir.Verdict) {
	if said, err := c.RunDir.Verdict(c.Attempt); err == nil && c.overruled(v, said) {
		return
	}
	v.Saved = false
	_ = c.RunDir.WriteVerdict(c.WithStep(v))
}

// stopFor stops this node's workers in the way that an outcome requires, and bounds the wait for other agents.
func (s *Supervisor) stopFor(v rundir.Verdict) {
	if v.Cause == causeDone {
		return
	}
	if v.Cause == causeCancelled && s.cfg.TermGrace > 0 { // KILL may follow soon
		s.cfg.Grace = min(s.cfg.Grace, s.cfg.TermGrace)
		s.shortenGrace()
	}
	// All workers of all agents have passed every stage by then. Agent 0 decides sooner.
	timeout := 2*s.cfg.Grace + killWait + reportMargin
	if s.cfg.Index != 0 {
		timeout += rendezvous.LastWordWait
	}
	s.overdue = time.After(timeout)
	switch v.Cause {
	case causeStopped:
		s.advance(asked, 0)
	case causeCancelled:
		s.advance(signalled, syscall.Signal(v.Signal))
	case causeHang:
		s.cfg.Grace = min(s.cfg.Grace, hangGrace) // workers that hang are not expected to react
		s.dumpStacks()
	default:
		s.advance(signalled, syscall.SIGTERM)
	}
}

// stopStage is how far the stopping of a node's workers has gone. It only increases.
type stopStage int

const (
	running   stopStage = iota
	asked               // the workers agreed to stop, and end by themselves
	signalled           // they got TERM, or the signal that the agent got
	killed              // they got KILL
	abandoned           // the kernel does not end them even so
)

// stopping is the stage of the workers' stopping, and when the next one comes.
type stopping struct {
	stage stopStage
	next  <-chan time.Time
	due   time.Time // when next comes, if workers have time to end
}

// within makes the next stage come after d.
func (s *stopping) within(d time.Duration) {
	s.next, s.due = time.After(d), time.Now().Add(d)
}

// shortenGrace leaves workers that are being stopped already at most s.cfg.Grace.
func (s *Supervisor) shortenGrace() {
	if (s.stop.stage == asked || s.stop.stage == signalled) && time.Until(s.stop.due) > s.cfg.Grace {
		s.stop.within(s.cfg.Grace)
	}
}

// advance takes this node's workers to a later stage. Each stage signals every worker's group once: workers may get a signal twice,
// but need not handle that.
func (s *Supervisor) advance(to stopStage, sig syscall.Signal) {
	if to <= s.stop.stage {
		return
	}
	s.stop.stage = to
	if s.alive == 0 {
		return
	}
	switch to {
	case asked:
		s.stop.within(s.cfg.Grace)
	case signalled:
		s.send(sig)
		s.send(syscall.SIGCONT) // for stopped workers, which only KILL reaches otherwise
		s.stop.within(s.cfg.Grace)
	case killed:
		s.send(syscall.SIGKILL)
		s.cfg.Log.Warn("workers did not end in time and are killed", "grace", s.cfg.Grace, "workers", s.alive)
		s.stop.next = time.After(killWait)
	case abandoned:
		s.cfg.Log.Error("killed workers do not end: the kernel holds them, perhaps for a file system that does not answer", "workers",
			s.alive)
		s.stop.next = nil
	}
}

// send signals the process group of every worker that has not ended.
func (s *Supervisor) send(sig syscall.Signal) {
	for _, w := range s.workers {
		_ = w.process.Signal(sig) // the signals are valid, and the group is this agent's or has ended
	}
}

// sweepLimit bounds the search for processes that the workers left behind, and the wait for their ends.
const sweepLimit = 10 * time.Second

// reaper makes sure that no process that the workers have started outlives their round, or this process. The zero reaper does
// nothing: then only the workers themselves, and their process groups, end with this process.
type reaper struct {
	guard     *proc.Guard
	subreaper *proc.Reaper // nil: none
	sweeps    bool
	log       *slog.Logger
}

// newReaper begins to watch for processes that workers leave behind, if c.Sweep is set. It logs what does not work.
func newReaper(c Config) *reaper {
	r := &reaper{log: c.Log, sweeps: c.Sweep}
	if !c.Sweep {
		return r
	}
	var err error
	if r.guard, err = proc.StartGuard(c.Log); err != nil {
		c.Log.Warn("processes that the workers start may outlive this agent if it is killed", "error", err)
	}
	if c.Container != nil && c.Container.HasMonitor() {
		return r // the monitor would be an orphan of this process
	}
	if r.subreaper, err = proc.Subreaper(); err != nil {
		c.Log.Warn("processes that leave their workers may not be found", "error", err)
	}
	return r
}

// noteCookie passes a round's cookie to the guard, before the round's first worker is started.
func (r *reaper) noteCookie(cookie string) {
	if err := r.guard.Sweep(cookie); err != nil {
		r.log.Warn("processes that the workers start may outlive this agent if it is killed", "error", err)
	}
}

// sweep kills the processes that the workers of a round have left behind, and returns how many of them do not end.
func (r *reaper) sweep(ctx context.Context, cookie string) int {
	if !r.sweeps {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	swept, err := proc.SweepOrphans(ctx, cookie)
	if err != nil {
		r.log.Warn("could not find out whether the workers have left processes behind", "error", err)
	}
	if len(swept.Killed) > 0 {
		r.log.Warn("processes that the workers had left behind were killed", "processes", swept.Killed)
	}
	if len(swept.Left) > 0 {
		r.log.Error("processes that the workers have left behind do not end", "processes", swept.Left)
	}
	return len(swept.Left)
}

// end ends the reaper. No worker may be left.
func (r *reaper) end() error {
	r.guard.End()
	if r.subreaper == nil {
		return nil
	}
	return r.subreaper.Close()
}
