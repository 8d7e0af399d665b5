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

// Rendezvous is the part of the agents' rendezvous (package rendezvous) that supervision needs.
type Rendezvous interface {
	Index() int          // this agent's number
	Secret() auth.Secret // the secret that the agents of the run share

	Store() store.Store               // the store that all agents of the run share
	RoundStore(round int) store.Store // the same store, below the round's number

	MasterAddr(l *rendezvous.Layout) string      // the MASTER_ADDR of a round's workers
	WorkerAddr() string                          // the address at which this node's workers can be reached
	Agent0Addr() string                          // the address by which agent 0 was reached from this node; "": not needed
	WorkerInterface() (name string, chosen bool) // the interface that leads this node's workers to the others; "": not known

	// These are for agent 0, and about a round's participants.
	Dismiss(p *rendezvous.Participant, why string) // goes on without it
	WhyLost(p *rendezvous.Participant) string      // "": it is not lost
	StoodStill(l *rendezvous.Layout) bool          // whether this agent stood still around the time when it lost one
	SilentHosts(l *rendezvous.Layout) []string     // nodes whose agents were lost by silence: their connections had not ended

	Agent0Lost() *rendezvous.LostError // for all other agents: how agent 0 was lost
}

// Agent is the state of an agent that lasts for all rounds of a run.
type Agent struct {
	cfg    Config
	rdzv   Rendezvous
	logDir *output.LogDir // nil: no --log-dir
	reaper *reaper

	signals       chan warning                      // at agent 0: signals that other agents or the batch script got
	warned        chan struct{}                     // closed when the run was warned
	warning       warning                           // read after warned
	leaves        atomic.Bool                       // at agent 0: the run is about to be warned of nodes that Slurm drains
	drained       chan struct{}                     // closed when the run was warned of such nodes
	drain         warning                           // read after drained
	layout        atomic.Pointer[rendezvous.Layout] // of the newest round
	movedDeadline atomic.Pointer[time.Time]         // when the job ends; zero: never; nil: at the first layout's deadline
	// leadUsed is a time.Duration, at agent 0: how long before the job's end it warns; 0: no end is known.
	leadUsed atomic.Int64

	ctx    context.Context // of the tasks; Close ends it
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// NewAgent begins to receive warnings. At agent 0 it also begins to warn before the job's end, and of nodes that Slurm drains.
func NewAgent(ctx context.Context, c Config, r Rendezvous, first *rendezvous.Layout, logDir *output.LogDir) *Agent {
	c.Index, c.Secret, c.Deadline = r.Index(), r.Secret(), first.Deadline
	a := &Agent{
		cfg: c, rdzv: r, logDir: logDir, reaper: newReaper(c), signals: make(chan warning, 1),
		warned: make(chan struct{}), drained: make(chan struct{}),
	}
	a.layout.Store(first)
	// Messages between agents outlive the signal that ends the run.
	a.ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	a.listenForWarnings()
	return a
}

// Close ends this agent's part. No worker may be left. The caller then closes the rendezvous and calls Wait.
func (a *Agent) Close() error {
	a.cancel()
	return a.reaper.end()
}

// Wait returns when all goroutines of the agent have ended, which may take until a file system answers.
func (a *Agent) Wait() { a.tasks.Wait() }

// IsWarned reports whether the run was asked to save and end, because the job's end is near or because of a signal or a stop file.
// Warnings of nodes that Slurm drains do not count: a job may go on there for as long as it likes.
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
	cookie  string         // in the environment of every process of this agent in this round
	private *privateFolder // folder for files without another place; nil: none
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
