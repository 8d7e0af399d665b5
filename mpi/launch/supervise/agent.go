package supervise

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/proc"
	"ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/launch/rendezvous"
	"ddpbatch/mpi/store"
)

// Rendezvous is what the supervision of workers needs of the agents' rendezvous (package rendezvous).
type Rendezvous interface {
	Index() int          // this agent's number
	Secret() auth.Secret // what the agents of the run share

	Store() store.Store               // that all agents of the run have in common
	RoundStore(round int) store.Store // below the round's number

	MasterAddr(l *rendezvous.Layout) string      // for the workers of a round
	WorkerAddr() string                          // where this node's workers can be reached
	Agent0Addr() string                          // by which agent 0 was reached from here; "": nobody had to
	WorkerInterface() (name string, chosen bool) // that leads this node's workers to the others; "": not known

	// At agent 0 only, of a round's participants.
	Dismiss(p *rendezvous.Participant, why string) // go on without it
	WhyLost(p *rendezvous.Participant) string      // "": it is not
	StoodStill(l *rendezvous.Layout) bool          // this agent, shortly before it lost one
	SilentHosts(l *rendezvous.Layout) []string     // nodes whose agents were lost without their connection's having ended

	Agent0Lost() *rendezvous.LostError // at all others: how agent 0 was lost
}

// Agent is what an agent has for all rounds of a run.
type Agent struct {
	cfg    Config
	rdzv   Rendezvous
	logDir *output.LogDir // nil: --log-dir is not given
	reaper *reaper

	signals       chan warning                      // at agent 0: signals that other agents and the batch script got
	warned        chan struct{}                     // closed when the run was warned
	warning       warning                           // read after warned
	leaves        atomic.Bool                       // at agent 0: the run is about to be asked to leave nodes that Slurm drains
	drained       chan struct{}                     // closed when it was
	drain         warning                           // read after drained
	layout        atomic.Pointer[rendezvous.Layout] // of the newest round
	movedDeadline atomic.Pointer[time.Time]         // when the job ends; zero: never; nil: as the first layout says
	// a time.Duration, at agent 0: how long before the job's end it warns; 0: no end is known
	leadUsed atomic.Int64

	ctx    context.Context // of the tasks; ends with close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// NewAgent begins to listen for warnings, and at agent 0 to warn before the job's end, and of nodes that Slurm drains.
func NewAgent(ctx context.Context, c Config, r Rendezvous, first *rendezvous.Layout, logDir *output.LogDir) *Agent {
	c.Index, c.Secret, c.Deadline = r.Index(), r.Secret(), first.Deadline
	a := &Agent{
		cfg: c, rdzv: r, logDir: logDir, reaper: newReaper(c), signals: make(chan warning, 1),
		warned: make(chan struct{}), drained: make(chan struct{}),
	}
	a.layout.Store(first)
	// What agents say to each other outlives the signal that ends the run.
	a.ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	a.listenForWarnings()
	return a
}

// Close ends this agent's part; no worker is left. The rendezvous is closed next, and then Wait is called.
func (a *Agent) Close() error {
	a.cancel()
	return a.reaper.end()
}

// Wait returns when nothing of the agent runs any more, which may take until a file system answers.
func (a *Agent) Wait() { a.tasks.Wait() }

// IsWarned tells whether the run was asked to save and end, as the job's end is near or somebody wants it. Of nodes that Slurm drains this
// does not tell: a job may go on there for as long as it likes.
func (a *Agent) IsWarned() bool {
	select {
	case <-a.warned:
		return true
	default:
		return false
	}
}

// round is one start of all workers of the run.
type round struct {
	agent   *Agent
	rdzv    Rendezvous
	cfg     Config // with this round's attempt and deadline
	layout  *rendezvous.Layout
	store   store.Store    // the control store, below the round's number
	cookie  string         // in the environment of every process of this agent's in this round
	private *privateFolder // folder of files that have no other place; nil: none
	began   time.Time
}

func newRound(a *Agent, l *rendezvous.Layout) *round {
	a.layout.Store(l)
	c := a.cfg
	c.Attempt, c.Deadline = l.Attempt, l.Deadline
	c.Restarts += l.Round
	c.MasterAddr, c.TorchStore = a.rdzv.MasterAddr(l), l.TorchStore
	return &round{agent: a, rdzv: a.rdzv, cfg: c, layout: l, store: a.rdzv.RoundStore(l.Round), cookie: proc.NewCookie(), began: time.Now()}
}
