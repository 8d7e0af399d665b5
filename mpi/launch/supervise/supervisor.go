package supervise

import (
	"cmp"
	"context"
	"os"
	"sync"
	"syscall"
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/blame"
	"ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/launch/rendezvous"
)

const (
	killWait     = 10 * time.Second // for the kernel to end a killed worker
	reportMargin = 15 * time.Second // for other agents to report beyond what their workers may take

	orphanGrace = 5 * time.Second // between TERM and KILL where agent 0 is lost
)

// Supervisor watches one agent's workers and what the other agents say. Its
// fields belong to the goroutine that calls Supervise.
type Supervisor struct {
	round   *round
	cfg     Config // the round's
	control *controlChannel

	controlCtx context.Context // of the control channel
	endControl context.CancelFunc
	cleanup    func() // what else Close does

	output  *output.Mux // nil: it could not be opened
	workers []*worker   // those that were started
	alive   int         // how many of them are
	before  proc.Memory // this node's, before they began
	exits   chan *worker
	stop    stopping

	interrupted <-chan struct{} // closed when the caller wants the run to stop; nil once it does
	mine        *rundir.Verdict // what this agent proposed as the outcome
	suspect     *rundir.Verdict // a worker's bad end, which it will propose unless it is told to stop first
	victim      bool            // the suspect only lost a peer, which may be heard of soon
	suspectDue  <-chan time.Time

	outcome  *rundir.Verdict      // the run's, once known
	overdue  <-chan time.Time     // when other agents are waited for no longer
	finished bool                 // nothing more is waited for from other agents
	writes   sync.WaitGroup       // writing the outcome, at agent 0, and the stop file
	reports  map[int]endsReport   // at agent 0: how the workers of each agent ended
	deaths   []blame.Death        // at agent 0: those that the reports tell of
	chosen   int                  // which of them is the first; -1: none
	last     *rendezvous.LastWord // agent 0's last word, at the other agents

	hangWatch  *hangWatch       // nil: nobody looks whether the workers hang
	observeDue <-chan time.Time // when to look again
	steps      *stepWatch       // nil: nobody wants to know how long steps take
	hung       *hang            // at agent 0: the workers hang
	dumped     <-chan []stacks  // receives once the stacks of workers that hang are written down; nil: none are to be
	stacks     []stacks         // of this agent's workers

	warned       <-chan struct{}  // closed when the workers are to be warned; nil once they are
	warnedAt     time.Time        // zero: they are not
	drained      <-chan struct{}  // the same of nodes that Slurm drains
	warnings     int              // how often they were warned: of a drain, of the job's end, or of one after the other
	forwardDue   <-chan time.Time // when to look again for workers that have got a handler for the warning
	forwardPause time.Duration    // before that look
}

// Supervise runs this agent's workers of one round, and returns when those of all agents are gone, or are waited for no longer. The result
// tells how the round ended, until it is closed.
func (a *Agent) Supervise(ctx context.Context, l *rendezvous.Layout) *Supervisor {
	s := a.newSupervisor(ctx, l)
	removePrivate := s.round.makePrivate()
	if ctx.Err() == nil {
		s.start(ctx)
	}
	endWatch := s.watchForHangs()
	s.run(ctx)
	s.cleanup = func() {
		endWatch()
		removePrivate()
	}
	return s
}

// newSupervisor begins a round, and has no worker yet.
func (a *Agent) newSupervisor(ctx context.Context, l *rendezvous.Layout) *Supervisor {
	r := newRound(a, l)
	s := &Supervisor{round: r, cfg: r.cfg, interrupted: ctx.Done(), warned: a.warned, drained: a.drained, cleanup: func() {}}
	// What agents say to each other outlives the signal that ends the run.
	s.controlCtx, s.endControl = context.WithCancel(context.WithoutCancel(ctx))
	s.control = openControlChannel(s.controlCtx, r)
	return s
}

// run waits for the ends of all workers, and for what the other agents say of theirs.
func (s *Supervisor) run(ctx context.Context) {
	for s.busy() {
		s.handleEvent(ctx)
	}
	if s.dumped != nil {
		s.stacks = <-s.dumped
	}
	left := s.round.agent.reaper.sweep(s.controlCtx, s.round.cookie)
	s.round.tidyUp()
	s.flushOutput()
	s.control.ended <- s.report(left)
	for !s.finished {
		s.handleEvent(ctx)
	}
	s.awaitWrites() // not before the report, without which agent 0 takes this node for lost
	s.reports = s.control.reports()
}

// Close ends what the round has had.
func (s *Supervisor) Close() {
	s.cleanup()
	s.endControl()
	s.control.wait()
}

// start starts this agent's workers in the order of their ranks, until one
// cannot be, or the run is to end: many take their time.
func (s *Supervisor) start(ctx context.Context) {
	workers := s.round.layout.NumbersOf(s.cfg.World)
	s.exits = make(chan *worker, len(workers))
	s.before, _ = proc.ReadMemory(os.DirFS("/")) // what is not known is no evidence; see memory
	s.round.agent.reaper.noteCookie(s.round.cookie)
	path, err := s.cfg.findCommand()
	if err == nil {
		s.output, err = s.round.openOutput()
	}
	var devices *devices
	if err == nil {
		devices, err = newDevices(s.cfg)
	}
	for _, numbers := range workers {
		if err == nil {
			err = s.startOne(numbers, path, devices)
		}
		if err != nil {
			s.propose(s.cfg.startOutcome(numbers.Rank, err))
			return
		}
		if s.handlePending(ctx); s.mine != nil || s.suspect != nil || s.outcome != nil || s.finished {
			return // who is started now would not be told to stop
		}
	}
}

func (s *Supervisor) startOne(n rendezvous.RankNumbers, path string, devices *devices) error {
	share, err := devices.of(n)
	if err != nil {
		return err
	}
	w, err := s.round.newWorker(n, path, share, s.output)
	if err != nil {
		return err
	}
	if err := w.start(s.round.agent.reaper.guard, func(w *worker) { s.exits <- w }); err != nil {
		return execError(s.cfg.Command[0], err)
	}
	s.cfg.Log.Debug("worker started", "rank", n.Rank, "pid", w.cmd.Process.Pid)
	s.workers = append(s.workers, w)
	s.alive++
	return nil
}

// handlePending acts on what has happened by now to the workers that run already, or to the run, and waits for nothing.
func (s *Supervisor) handlePending(ctx context.Context) {
	for {
		select {
		case w := <-s.exits:
			s.workerEnded(ctx, w)
			continue
		case v := <-s.control.outcomes:
			s.receiveOutcome(v)
			continue
		case p := <-s.control.lost:
			s.participantLost(p)
			continue
		case l := <-s.control.lastWords:
			s.receiveLastWord(l)
			continue
		default:
		}
		if s.mine == nil && s.outcome == nil && s.isInterrupted() {
			s.interrupted = nil
			s.propose(s.cfg.interruptedOutcome(ctx))
		}
		return
	}
}

// busy is true until this agent may report that its part is over, which must not
// change any more: it has no worker, and what it has to propose has been accepted or overruled.
func (s *Supervisor) busy() bool {
	proposing := (s.suspect != nil || s.mine != nil || len(s.workers) == 0 && s.isInterrupted()) && s.outcome == nil
	return s.alive > 0 && s.stop.stage < abandoned || proposing && !s.finished
}

// awaitWrites waits for what is being written while the round goes on.
func (s *Supervisor) awaitWrites() {
	if err := DoFS("write the stop file, or the first word on the verdict", func() error { s.writes.Wait(); return nil }); err != nil {
		s.cfg.Log.Warn("a file is not written", "error", err)
	}
}

// isInterrupted tells whether the caller wants the run to stop, and this agent has not acted on it.
func (s *Supervisor) isInterrupted() bool {
	select {
	case <-s.interrupted:
		return true
	default:
		return false
	}
}

// handleEvent waits for one event and acts on it.
func (s *Supervisor) handleEvent(ctx context.Context) {
	select {
	case w := <-s.exits:
		s.workerEnded(ctx, w)
	case <-s.interrupted:
		s.interrupted = nil
		s.propose(s.cfg.interruptedOutcome(ctx))
	case <-s.suspectDue:
		if s.isInterrupted() { // both have come while this process did not run
			s.interrupted = nil
			s.propose(s.cfg.interruptedOutcome(ctx))
			return
		}
		s.propose(*s.suspect)
	case v := <-s.control.first:
		s.receiveFirst(v)
	case <-s.stop.next:
		s.advance(s.stop.stage+1, syscall.SIGTERM)
	case v := <-s.control.outcomes:
		s.receiveOutcome(v)
	case p := <-s.control.lost:
		s.participantLost(p)
	case l := <-s.control.lastWords:
		s.receiveLastWord(l)
	case <-s.control.reported:
		s.finished = true
	case <-s.warned:
		s.warned, s.warnedAt = nil, time.Now()
		s.warn(s.round.agent.warning)
	case <-s.drained:
		s.drained = nil
		s.warn(s.round.agent.drain)
	case <-s.forwardDue:
		s.forward()
	case <-s.observeDue:
		s.observe()
	case r := <-s.control.workersIn:
		s.receiveWorkers(r)
	case s.stacks = <-s.dumped:
		s.dumped = nil
		s.advance(signalled, syscall.SIGTERM)
	case <-s.overdue:
		s.finished = true
		s.outcome = cmp.Or(s.outcome, s.mine, s.suspect) // agent 0 may not have answered
		s.cfg.Log.Warn("other agents did not report in time and are waited for no longer")
	}
}

// participantLost ends the round where another agent was lost.
func (s *Supervisor) participantLost(p *rendezvous.Participant) {
	s.propose(s.cfg.lostOutcome(&rendezvous.LostError{Agent: p.Index, Host: p.Host, Why: p.Why()}))
}

// receiveLastWord takes agent 0's last word; nil: agent 0 is lost.
func (s *Supervisor) receiveLastWord(l *rendezvous.LastWord) {
	s.last, s.finished = l, true
	if l == nil {
		s.goOnWithoutAgent0()
	}
}

// goOnWithoutAgent0 ends this agent's part without agent 0: nobody is left to decide otherwise. This node may be the one
// that is cut off, and the others may go on without it; so its workers have little time.
func (s *Supervisor) goOnWithoutAgent0() {
	s.cfg.Grace = min(s.cfg.Grace, orphanGrace)
	s.receiveOutcome(s.cfg.lostOutcome(s.round.rdzv.Agent0Lost()))
	s.advance(signalled, syscall.SIGTERM) // those, too, that had been asked to leave by themselves
	s.shortenGrace()
}

// flushOutput waits until all that the workers wrote is in its files.
func (s *Supervisor) flushOutput() {
	if s.stop.stage == abandoned || s.output == nil {
		return
	}
	timer := time.NewTimer(rendezvous.LastWordWait)
	defer timer.Stop()
	for _, w := range s.workers {
		for _, stream := range []*output.Stream{w.out, w.errs} {
			select {
			case <-stream.Done():
			case <-timer.C:
				s.cfg.Log.Warn("workers' output still waits for a slow console and may be cut", "limit", rendezvous.LastWordWait)
				return
			}
		}
	}
	s.output.Close()
}
