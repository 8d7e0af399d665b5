package launch

import (
	"cmp"
	"context"
	"syscall"
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/blame"
)

// What ends a round is proposed by the agent that sees it, and is the round's outcome if no other was before.

func (s *supervisor) workerEnded(ctx context.Context, w *worker) {
	w.ended = time.Now()
	if s.alive--; s.alive == 0 {
		s.stop.next = nil // there is nobody left to be killed
	}
	w.followed = s.following()
	if died := w.signal == s.cfg.WarnSignal || w.exit == exitSignal+int(s.cfg.WarnSignal); died && w.warned && !w.followed {
		// The worker, or the program that it runs as a shell, had a handler when this agent looked, and had none when the signal came. So it
		// was ending: Python removes its handlers when it finalizes. Its exit code is lost. The next attempt goes on from what it saved.
		s.cfg.Log.Warn("a worker took back its handler as it was warned, and died of the signal: taken for exit code 75", "rank", w.place.Rank)
		w.exit, w.signal = exitRequeue, 0
	}
	s.cfg.Log.Debug("worker ended", "rank", w.place.Rank, "exit", w.exit, "signal", int(w.signal))
	v, bad := s.cfg.exitOutcome(w)
	known := s.mine != nil || s.outcome != nil || s.suspect != nil && !s.victim
	switch {
	case !bad || known: // a consequence
	case ctx.Err() != nil:
		s.told = nil
		s.propose(s.cfg.toldOutcome(ctx))
	case s.isVictim(w):
		if s.suspect == nil {
			s.suspect, s.victim, s.settled = &v, true, time.After(s.cfg.victimWait)
		}
	default:
		s.suspect, s.victim = &v, false
		s.talk.ends <- v
		s.weigh(v)
	}
}

// following tells whether a worker that ends now may do so since it was told to. Nobody has told it where the others agreed to stop, as long
// as they have the time to leave by themselves.
func (s *supervisor) following() bool {
	known := cmp.Or(s.outcome, s.mine)
	return s.stop.stage > asked || known != nil && known.Cause != causeStopped
}

// isVictim tells whether a worker's last words only say that a peer went away. Then that peer is about to end, too: were it
// told to stop now, nobody would know what it failed of.
func (s *supervisor) isVictim(w *worker) bool {
	return w.out != nil && blame.Victim(s.death(w, proc.OutOfMemory{}))
}

// ranked learns which worker of the run ended badly first.
func (s *supervisor) ranked(first rundir.Verdict) {
	if s.mine != nil || s.outcome != nil {
		return
	}
	s.suspect = &first
	s.weigh(first)
	if s.settled == nil {
		s.propose(first)
	}
}

// weigh waits for the signal that v may be the consequence of; in any other case this
// node's workers are stopped at once.
func (s *supervisor) weigh(v rundir.Verdict) {
	s.settled = nil
	if mayBeTold(v) {
		s.settled = time.After(settle)
		return
	}
	s.obey(v)
}

// propose makes v the run's outcome, unless there is one. This node's workers
// are stopped at once: the others may be slow to answer, or gone.
func (s *supervisor) propose(v rundir.Verdict) {
	s.settled = nil
	if s.mine == nil && s.outcome == nil {
		s.mine = &v
		s.talk.proposals <- v
	} else if v.Cause != causeCancelled {
		return // a consequence; only a signal has more to say to the workers
	}
	s.obey(v)
}

// decided learns the run's outcome.
func (s *supervisor) decided(v rundir.Verdict) {
	if s.outcome != nil {
		return
	}
	s.settled, s.outcome = nil, &v
	if v.Cause != causeDone {
		s.cfg.Log.Info("the run ends", "why", v.Message)
	}
	s.obey(v)
	if s.cfg.Index == 0 && s.cfg.RunDir != nil && v.Cause != causeDone {
		v.WarnedS, v.LeadS = s.sinceWarning(), s.round.m.leadS()
		cfg := s.cfg // obey changes it
		s.early.Go(func() { cfg.writeEarly(v) })
	}
}

// writeEarly puts the outcome on disk, since Slurm may kill this agent before its workers' grace is over (slurm.conf, KillWait). That the run has
// saved is known only when all workers have ended (see account). An error will be that of the last word, too.
func (c AgentConfig) writeEarly(v rundir.Verdict) {
	if said, err := c.RunDir.Verdict(c.Attempt); err == nil && c.overruled(v, said) {
		return
	}
	v.Saved = false
	_ = c.RunDir.WriteVerdict(c.withStep(v))
}

// obey stops this node's workers as an outcome asks for, and bounds the wait for other agents.
func (s *supervisor) obey(v rundir.Verdict) {
	if v.Cause == causeDone {
		return
	}
	if v.Cause == causeCancelled && s.cfg.TermGrace > 0 { // whoever tells a run to stop may kill it soon
		s.cfg.Grace = min(s.cfg.Grace, s.cfg.TermGrace)
		s.hurry()
	}
	// All workers of all agents have passed every stage by then; agent 0 decides sooner.
	patience := 2*s.cfg.Grace + killWait + margin
	if s.cfg.Index != 0 {
		patience += farewell
	}
	s.overdue = time.After(patience)
	switch v.Cause {
	case causeStopped:
		s.raise(asked, 0)
	case causeCancelled:
		s.raise(signalled, syscall.Signal(v.Signal))
	case causeHang:
		s.cfg.Grace = min(s.cfg.Grace, hangGrace) // they have shown that they do not react
		s.inspect()
	default:
		s.raise(signalled, syscall.SIGTERM)
	}
}
