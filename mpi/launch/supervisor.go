package launch

import (
	"cmp"
	"context"
	"sync"
	"syscall"
	"time"

	"ddpbatch/internal/rundir"
)

const (
	settle   = 200 * time.Millisecond // for the agent's own signal to arrive, see mayBeTold
	killWait = 10 * time.Second       // for the kernel to end a killed worker
	margin   = 15 * time.Second       // for other agents to report beyond what their workers may take
	farewell = 5 * time.Second        // for others to read the last word
)

// supervisor watches one agent's workers and what the other agents say. Its
// fields belong to the goroutine that calls run.
type supervisor struct {
	cfg  AgentConfig
	m    *meeting
	talk *talk

	workers []*worker // those that were started
	alive   int       // how many of them are
	exits   chan *worker
	stop    stopping

	told    <-chan struct{} // closed when the caller wants the run to stop; nil once it does
	mine    *rundir.Verdict // what this agent proposed as the outcome
	suspect *rundir.Verdict // a worker's bad end, which it will propose unless it is told to stop first
	settled <-chan time.Time

	outcome  *rundir.Verdict  // the run's, once known
	overdue  <-chan time.Time // when other agents are waited for no longer
	finished bool             // nothing more is waited for from other agents
	early    sync.WaitGroup   // writing the outcome, at agent 0
	verdict  *rundir.Verdict  // agent 0's last word, at the other agents
}

// supervise runs this agent's workers and returns the run's verdict when those
// of all agents are gone.
func supervise(ctx context.Context, c AgentConfig, m *meeting) (rundir.Verdict, error) {
	// What agents say to each other outlives the signal that ends the run.
	talkCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &supervisor{cfg: c, m: m, told: ctx.Done(), talk: startTalk(talkCtx, c, m)}
	defer s.talk.wait()
	defer cancel()
	s.start()
	for s.busy() {
		s.step(ctx)
	}
	s.drain()
	s.talk.ended <- struct{}{}
	for !s.finished {
		s.step(ctx)
	}
	if c.Index == 0 {
		s.early.Wait()
		return concludeAll(talkCtx, c, m)
	}
	return s.conclude()
}

// busy is true until this agent may report that its part is over, which must not
// change any more: it has no worker, and what it has to propose has been accepted or overruled.
func (s *supervisor) busy() bool {
	proposing := (s.suspect != nil || s.mine != nil) && s.outcome == nil
	return s.alive > 0 && s.stop.stage < abandoned || proposing && !s.finished
}

// step waits for one event and acts on it.
func (s *supervisor) step(ctx context.Context) {
	select {
	case w := <-s.exits:
		s.workerEnded(ctx, w)
	case <-s.told:
		s.told = nil
		s.propose(s.cfg.toldOutcome(ctx))
	case <-s.settled:
		s.propose(*s.suspect)
	case v := <-s.talk.first:
		s.ranked(v)
	case <-s.stop.next:
		s.raise(s.stop.stage+1, syscall.SIGTERM)
	case v := <-s.talk.outcomes:
		s.decided(v)
	case index := <-s.talk.lost:
		s.propose(s.cfg.lostOutcome(index))
	case s.verdict = <-s.talk.verdicts:
		s.finished = true
		if s.verdict == nil {
			s.decided(s.cfg.lostOutcome(0)) // nobody is left to decide otherwise
		}
	case <-s.talk.allEnded:
		s.finished = true
	case <-s.overdue:
		s.finished = true
		s.outcome = cmp.Or(s.outcome, s.mine, s.suspect) // agent 0 may not have answered
		s.cfg.Log.Warn("other agents did not report in time and are waited for no longer")
	}
}

func (s *supervisor) workerEnded(ctx context.Context, w *worker) {
	s.alive--
	s.cfg.Log.Debug("worker ended", "rank", w.place.Rank, "exit", w.exit, "signal", int(w.signal))
	v, bad := s.cfg.exitOutcome(w)
	switch {
	case !bad || s.suspect != nil || s.mine != nil || s.outcome != nil: // a consequence
	case ctx.Err() != nil:
		s.told = nil
		s.propose(s.cfg.toldOutcome(ctx))
	default:
		s.suspect = &v
		s.talk.ends <- v
		s.weigh(v)
	}
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
		// Slurm may kill this agent before its workers' grace is over (slurm.conf, KillWait). An
		// error will be that of the last word, too.
		s.early.Go(func() { _ = s.cfg.RunDir.WriteVerdict(v) })
	}
}

// obey stops this node's workers as an outcome asks for, and bounds the wait for other agents.
func (s *supervisor) obey(v rundir.Verdict) {
	if v.Cause == causeDone {
		return
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
	default:
		s.raise(signalled, syscall.SIGTERM)
	}
}

// drain waits until all that the workers wrote is in its files.
func (s *supervisor) drain() {
	if s.stop.stage == abandoned {
		return
	}
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	for _, w := range s.workers {
		for _, output := range []*stream{w.out, w.errs} {
			select {
			case <-output.done:
			case <-timer.C:
				s.cfg.Log.Warn("workers' output still waits for a slow console and may be cut", "limit", farewell)
				return
			}
		}
	}
}
