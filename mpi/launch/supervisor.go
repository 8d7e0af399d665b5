package launch

import (
	"cmp"
	"context"
	"os"
	"sync"
	"syscall"
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/output"
)

const (
	settle = 200 * time.Millisecond // for the agent's own signal to arrive, see mayBeTold

	killWait = 10 * time.Second // for the kernel to end a killed worker
	margin   = 15 * time.Second // for other agents to report beyond what their workers may take
	farewell = 5 * time.Second  // for others to read the last word

	orphanGrace = 5 * time.Second // between TERM and KILL where agent 0 is lost
)

// supervisor watches one agent's workers and what the other agents say. Its
// fields belong to the goroutine that calls run.
type supervisor struct {
	round *round
	cfg   AgentConfig // the round's
	talk  *talk

	output  *output.Mux // nil: it could not be opened
	workers []*worker   // those that were started
	alive   int         // how many of them are
	before  proc.Memory // this node's, before they began
	exits   chan *worker
	stop    stopping

	told    <-chan struct{} // closed when the caller wants the run to stop; nil once it does
	mine    *rundir.Verdict // what this agent proposed as the outcome
	suspect *rundir.Verdict // a worker's bad end, which it will propose unless it is told to stop first
	victim  bool            // the suspect only lost a peer, which may be heard of soon
	settled <-chan time.Time

	outcome  *rundir.Verdict  // the run's, once known
	overdue  <-chan time.Time // when other agents are waited for no longer
	finished bool             // nothing more is waited for from other agents
	early    sync.WaitGroup   // writing the outcome, at agent 0, and the stop file
	reports  map[int]report   // at agent 0: how the workers of each agent ended
	last     *last            // agent 0's last word, at the other agents

	lookout   *lookout         // nil: nobody looks whether the workers hang
	looks     <-chan time.Time // when to look again
	hung      *hang            // at agent 0: the workers hang
	inspected <-chan []stacks  // receives once the stacks of workers that hang are written down; nil: none are to be
	stacks    []stacks         // of this agent's workers

	warned   <-chan struct{}  // closed when the workers are to be warned; nil once they are
	warnedAt time.Time        // zero: they are not
	again    <-chan time.Time // when to look again for workers that have got a handler for the warning
	pause    time.Duration    // before that look
}

// supervise runs this agent's workers of one round, and returns the round's verdict when those
// of all agents are gone, and the next round's plan; nil: there is none.
func supervise(ctx context.Context, r *round) (rundir.Verdict, *plan, error) {
	// What agents say to each other outlives the signal that ends the run.
	talkCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &supervisor{round: r, cfg: r.cfg, told: ctx.Done(), warned: r.m.warned, talk: startTalk(talkCtx, r)}
	defer s.talk.wait()
	defer cancel()
	defer r.makePrivate()()
	if ctx.Err() == nil {
		s.start(ctx)
	}
	defer s.lookOut()()
	for s.busy() {
		s.step(ctx)
	}
	if s.inspected != nil {
		s.stacks = <-s.inspected
	}
	left := r.m.keeper.sweep(talkCtx, r.cookie)
	s.drain()
	s.talk.ended <- s.report(left)
	for !s.finished {
		s.step(ctx)
	}
	s.awaitEarly() // not before the report, without which agent 0 takes this node for lost
	if r.cfg.Index == 0 {
		s.reports = s.talk.reports()
		return s.concludeAll(ctx, talkCtx)
	}
	return s.conclude(talkCtx)
}

// start starts this agent's workers in the order of their ranks, until one
// cannot be, or the run is to end: many take their time.
func (s *supervisor) start(ctx context.Context) {
	places := s.round.plan.places(s.cfg)
	s.exits = make(chan *worker, len(places))
	s.before, _ = proc.ReadMemory(os.DirFS("/")) // what is not known is no evidence; see memory
	s.round.m.keeper.mark(s.round.cookie)
	path, err := s.cfg.findCommand()
	if err == nil {
		s.output, err = s.round.openOutput()
	}
	var devices *devices
	if err == nil {
		devices, err = newDevices(s.cfg)
	}
	for _, place := range places {
		if err == nil {
			err = s.startOne(place, path, devices)
		}
		if err != nil {
			s.propose(s.cfg.startOutcome(place.Rank, err))
			return
		}
		if s.glance(ctx); s.mine != nil || s.suspect != nil || s.outcome != nil || s.finished {
			return // who is started now would not be told to stop
		}
	}
}

func (s *supervisor) startOne(p Place, path string, devices *devices) error {
	plan, err := devices.of(p)
	if err != nil {
		return err
	}
	w, err := s.round.newWorker(p, path, plan, s.output)
	if err != nil {
		return err
	}
	if err := w.start(s.round.m.keeper.guard, func(w *worker) { s.exits <- w }); err != nil {
		return execError(s.cfg.Command[0], err)
	}
	s.cfg.Log.Debug("worker started", "rank", p.Rank, "pid", w.cmd.Process.Pid)
	s.workers = append(s.workers, w)
	s.alive++
	return nil
}

// glance acts on what has happened by now to the workers that run already, or to the run, and waits for nothing.
func (s *supervisor) glance(ctx context.Context) {
	for {
		select {
		case w := <-s.exits:
			s.workerEnded(ctx, w)
			continue
		case v := <-s.talk.outcomes:
			s.decided(v)
			continue
		case g := <-s.talk.lost:
			s.lost(g)
			continue
		case l := <-s.talk.lasts:
			s.ended(l)
			continue
		default:
		}
		if s.mine == nil && s.outcome == nil && s.toStop() {
			s.told = nil
			s.propose(s.cfg.toldOutcome(ctx))
		}
		return
	}
}

// busy is true until this agent may report that its part is over, which must not
// change any more: it has no worker, and what it has to propose has been accepted or overruled.
func (s *supervisor) busy() bool {
	proposing := (s.suspect != nil || s.mine != nil || len(s.workers) == 0 && s.toStop()) && s.outcome == nil
	return s.alive > 0 && s.stop.stage < abandoned || proposing && !s.finished
}

// awaitEarly waits for what is being written while the round goes on.
func (s *supervisor) awaitEarly() {
	if err := finished("write the stop file, or the first word on the verdict", func() error { s.early.Wait(); return nil }); err != nil {
		s.cfg.Log.Warn("a file is not written", "error", err)
	}
}

// toStop tells whether the caller wants the run to stop, and this agent has not acted on it.
func (s *supervisor) toStop() bool {
	select {
	case <-s.told:
		return true
	default:
		return false
	}
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
		if s.toStop() { // both have come while this process did not run
			s.told = nil
			s.propose(s.cfg.toldOutcome(ctx))
			return
		}
		s.propose(*s.suspect)
	case v := <-s.talk.first:
		s.ranked(v)
	case <-s.stop.next:
		s.raise(s.stop.stage+1, syscall.SIGTERM)
	case v := <-s.talk.outcomes:
		s.decided(v)
	case g := <-s.talk.lost:
		s.lost(g)
	case l := <-s.talk.lasts:
		s.ended(l)
	case <-s.talk.reported:
		s.finished = true
	case <-s.warned:
		s.warned = nil
		s.warn()
	case <-s.again:
		s.forward()
	case <-s.looks:
		s.look()
	case h := <-s.talk.heard:
		s.hear(h)
	case s.stacks = <-s.inspected:
		s.inspected = nil
		s.raise(signalled, syscall.SIGTERM)
	case <-s.overdue:
		s.finished = true
		s.outcome = cmp.Or(s.outcome, s.mine, s.suspect) // agent 0 may not have answered
		s.cfg.Log.Warn("other agents did not report in time and are waited for no longer")
	}
}

// lost ends the round where another agent was lost.
func (s *supervisor) lost(g *guest) {
	s.propose(s.cfg.lostOutcome(&LostError{Agent: g.index, Host: g.join.Host, Why: g.why}))
}

// ended takes agent 0's last word; nil: agent 0 is lost.
func (s *supervisor) ended(l *last) {
	s.last, s.finished = l, true
	if l == nil {
		s.leaderless()
	}
}

// leaderless ends this agent's part without agent 0: nobody is left to decide otherwise. This node may be the one
// that is cut off, and the others may go on without it; so its workers have little time.
func (s *supervisor) leaderless() {
	s.cfg.Grace = min(s.cfg.Grace, orphanGrace)
	s.decided(s.cfg.lostOutcome(s.round.m.leaderLost()))
	s.raise(signalled, syscall.SIGTERM) // those, too, that had been asked to leave by themselves
	s.hurry()
}

// drain waits until all that the workers wrote is in its files.
func (s *supervisor) drain() {
	if s.stop.stage == abandoned || s.output == nil {
		return
	}
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	for _, w := range s.workers {
		for _, stream := range []*output.Stream{w.out, w.errs} {
			select {
			case <-stream.Done():
			case <-timer.C:
				s.cfg.Log.Warn("workers' output still waits for a slow console and may be cut", "limit", farewell)
				return
			}
		}
	}
	s.output.Close()
}
