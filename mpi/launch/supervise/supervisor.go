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
	reportMargin = 15 * time.Second // for other agents to report, after the time that their workers may take

	orphanGrace = 5 * time.Second // between TERM and KILL if agent 0 is lost
)

// Supervisor watches one agent's workers, and handles the other agents' messages. Its fields belong to the goroutine that calls
// Supervise.
type Supervisor struct {
	round   *round
	cfg     Config // the round's
	control *controlChannel

	controlCtx context.Context // of the control channel
	endControl context.CancelFunc
	cleanup    func() // called by Close

	output  *output.Mux // nil: it could not be opened
	workers []*worker   // the workers that were started
	alive   int         // how many of them have not ended
	before  proc.Memory // this node's, before they were started
	exits   chan *worker
	stop    stopping

	interrupted <-chan struct{} // closed when the caller wants the run to stop; nil once it does
	mine        *rundir.Verdict // the outcome that this agent proposed
	suspect     *rundir.Verdict // a worker's failure, which this agent will propose unless it is told to stop first
	victim      bool            // the suspect only lost a peer, which may report a failure soon
	suspectDue  <-chan time.Time

	outcome  *rundir.Verdict      // the run's, once known
	overdue  <-chan time.Time     // receives when the wait for other agents is over
	finished bool                 // no more messages of other agents are expected
	writes   sync.WaitGroup       // writes of the outcome, at agent 0, and of the stop file
	reports  map[int]endsReport   // at agent 0: how the workers of each agent ended
	deaths   []blame.Death        // at agent 0: the deaths in all reports
	chosen   int                  // which of them came first; -1: none
	last     *rendezvous.LastWord // at the other agents: the round's end, by agent 0

	hangWatch  *hangWatch       // nil: the workers are not watched for hangs
	observeDue <-chan time.Time // receives when to observe them again
	steps      *stepWatch       // nil: step times are not recorded
	hung       *hang            // at agent 0: the workers hang
	dumped     <-chan []stacks  // receives once the stacks of workers that hang are written down; nil: none are being written
	stacks     []stacks         // of this agent's workers

	warned       <-chan struct{}  // closed when the workers are to be warned; nil once they were
	warnedAt     time.Time        // zero: not warned
	drained      <-chan struct{}  // the same for nodes that Slurm drains
	warnings     int              // how often they were warned: of a drain, of the job's end, or of both
	forwardDue   <-chan time.Time // receives when to look again for workers that now have a handler for the warning
	forwardPause time.Duration    // the pause before that look
}

// Supervise runs this agent's workers of one round. It returns when the workers of all agents have ended, or the wait for other
// agents is over. The result says how the round ended. The caller must close it.
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

// newSupervisor begins a round without workers.
func (a *Agent) newSupervisor(ctx context.Context, l *rendezvous.Layout) *Supervisor {
	r := newRound(a, l)
	s := &Supervisor{round: r, cfg: r.cfg, interrupted: ctx.Done(), warned: a.warned, drained: a.drained, cleanup: func() {}}
	// Messages between agents outlive the signal that ends the run.
	s.controlCtx, s.endControl = context.WithCancel(context.WithoutCancel(ctx))
	s.control = openControlChannel(s.controlCtx, r)
	return s
}

// run waits for the ends of all workers, and for the other agents' reports on theirs.
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
	s.awaitWrites() // after the report: without that, agent 0 counts this node as lost
	s.reports = s.control.reports()
}

// Close releases the round's resources.
func (s *Supervisor) Close() {
	s.cleanup()
	s.endControl()
	s.control.wait()
}

// start starts this agent's workers in the order of their ranks, until one cannot be started or the run is to end: starting many
// takes a while.
func (s *Supervisor) start(ctx context.Context) {
	workers := s.round.layout.NumbersOf(s.cfg.World)
	s.exits = make(chan *worker, len(workers))
	s.before, _ = proc.ReadMemory(os.DirFS("/")) // without a value there will be no evidence; see memory
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
			return // a worker that is started now would not be told to stop
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

// handlePending handles pending events of the workers that run already, and of the run. It does not wait.
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

// busy reports whether this agent may not yet report that its part is over, as the report is final. It may when no worker is left,
// and its proposal, if any, has been accepted or overruled.
func (s *Supervisor) busy() bool {
	proposing := (s.suspect != nil || s.mine != nil || len(s.workers) == 0 && s.isInterrupted()) && s.outcome == nil
	return s.alive > 0 && s.stop.stage < abandoned || proposing && !s.finished
}

// awaitWrites waits for writes that were started during the round.
func (s *Supervisor) awaitWrites() {
	if err := DoFS("write the stop file, or the early verdict", func() error { s.writes.Wait(); return nil }); err != nil {
		s.cfg.Log.Warn("could not write a file", "error", err)
	}
}

// isInterrupted reports whether the caller wants the run to stop, and this agent has not acted on that yet.
func (s *Supervisor) isInterrupted() bool {
	select {
	case <-s.interrupted:
		return true
	default:
		return false
	}
}

// handleEvent waits for one event and handles it.
func (s *Supervisor) handleEvent(ctx context.Context) {
	select {
	case w := <-s.exits:
		s.workerEnded(ctx, w)
	case <-s.interrupted:
		s.interrupted = nil
		s.propose(s.cfg.interruptedOutcome(ctx))
	case <-s.suspectDue:
		if s.isInterrupted() { // both became due while this process did not run
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
		s.cfg.Log.Warn("other agents did not report in time; not waiting for them any longer")
	}
}

// participantLost ends the round after the loss of another agent.
func (s *Supervisor) participantLost(p *rendezvous.Participant) {
	s.propose(s.cfg.lostOutcome(&rendezvous.LostError{Agent: p.Index, Host: p.Host, Why: p.Why()}))
}

// receiveLastWord handles the round's end as agent 0 published it, or nil if agent 0 is lost.
func (s *Supervisor) receiveLastWord(l *rendezvous.LastWord) {
	s.last, s.finished = l, true
	if l == nil {
		s.goOnWithoutAgent0()
	}
}

// goOnWithoutAgent0 ends this agent's part without agent 0, since no other agent decides. This node may be the one that is cut off,
// and the others may go on without it, so its workers get little time.
func (s *Supervisor) goOnWithoutAgent0() {
	s.cfg.Grace = min(s.cfg.Grace, orphanGrace)
	s.receiveOutcome(s.cfg.lostOutcome(s.round.rdzv.Agent0Lost()))
	s.advance(signalled, syscall.SIGTERM) // also workers that had been asked to end by themselves
	s.shortenGrace()
}

// flushOutput waits until everything that the workers wrote is in the files.
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
