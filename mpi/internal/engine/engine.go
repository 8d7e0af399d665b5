package engine

import (
	"math"
	"sync"
	"time"

	"ddpbatch/mpi/internal/tick"
	"ddpbatch/mpi/transport"
)

// Engine is one rank's end of all its links: it turns streams of bytes into messages, and gives each
// to the receive that waits for it. Its methods, and those of its groups, are
// safe for concurrent use.
type Engine struct {
	fabric  transport.Fabric
	options Options
	policy  transport.WaitPolicy
	piece   int // how many bytes of a frame are written before others have their turn
	clock   tick.Clock

	mu            sync.Mutex // guards what follows, and what hangs on it
	peers         []*peer    // by world rank; nil where nothing was said yet
	groups        map[uint64]*Group
	closedGroups  map[uint64]struct{}   // groups that were closed: their late frames are nobody's
	closedInOrder []uint64              // the same, oldest first
	news          map[uint64]*groupNews // of groups that this rank is not of yet
	answerTimeout time.Duration         // how long a rank that has waited in vain waits for answers to its queries
	answered      *sync.Cond            // a peer has answered a query
	anySent       opList                // receives from any rank
	posted        uint64                // receives so far
	writing       []*lane               // those that have something left to write
	sleepers      []*waiter
	unread        []*lane            // those that may have something to read of which the fabric will not tell
	ready         []transport.LinkID // scratch of look
	visited       []*lane            // scratch of look
	earlyLimit    int                // how many bytes of early messages may be held
	earlyBytes    int                // how many are
	spare         pool               // memory of early messages
	waiters       []*waiter
	pursued       int // ops that are to go on though nobody waits for them
	closed        bool

	closeOnce func() error // close, at its first call

	nudging     sync.RWMutex
	ended       bool          // the fabric is closed; guarded by mu, and for reading by nudging
	kick        chan struct{} // there is a sleeper
	pursueTimer *time.Timer   // there is an op to be pursued
	stop        chan struct{}
	done        chan struct{} // the attendant has ended
}

// Options are what an engine is told.
type Options struct {
	// Timeout is how long a waiting rank bears no progress.
	Timeout time.Duration

	// Describe words a call in errors. DescribeFully words two that differ and read the same.
	Describe, DescribeFully func(Call) string

	// Label says who this rank is, for the others' errors: host and pid, say.
	Label string
}

// New starts an engine on the links of fabric, which it closes in the end.
func New(fabric transport.Fabric, options Options) *Engine {
	e := &Engine{
		fabric: fabric, options: options, policy: fabric.WaitPolicy(), piece: math.MaxInt, clock: tick.NewClock(),
		peers:  make([]*peer, fabric.Size()),
		groups: make(map[uint64]*Group), closedGroups: make(map[uint64]struct{}), news: make(map[uint64]*groupNews),
		earlyLimit: maxEarly, answerTimeout: defaultAnswerTimeout, pursueTimer: time.NewTimer(time.Hour),
		kick: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if e.policy.Yield {
		e.piece = pieceBytes
	}
	e.answered, e.closeOnce = sync.NewCond(&e.mu), sync.OnceValue(e.close)
	go e.attend()
	return e
}

// Rank is this process's place among all ranks.
func (e *Engine) Rank() int { return e.fabric.Rank() }

// Size is the number of all ranks.
func (e *Engine) Size() int { return e.fabric.Size() }

// Close leaves all groups, says goodbye, and returns when the engine's goroutine has ended and the fabric is closed.
func (e *Engine) Close() error { return e.closeOnce() }

// closeLimit bounds how long Close waits for what is still to be written.
const closeLimit = time.Second

func (e *Engine) close() error {
	e.mu.Lock()
	e.closed = true
	for _, g := range e.groups {
		e.failGroup(g, ErrClosed)
	}
	for rank := range e.peers {
		if rank != e.Rank() && e.linked(rank) {
			p := e.peer(rank)
			if e.goodbyeLane(p) == p.data {
				e.sendControlOn(p.data, header{kind: kindBye}, nil)
			}
			e.sendControlOn(p.control, header{kind: kindBye}, nil)
		}
	}
	for deadline := time.Now().Add(closeLimit); len(e.writing) > 0 && time.Now().Before(deadline); {
		e.mu.Unlock()
		time.Sleep(time.Millisecond)
		e.mu.Lock()
		e.look()
	}
	e.mu.Unlock()
	close(e.stop)
	e.fabric.Wake()
	<-e.done
	e.mu.Lock()
	defer e.mu.Unlock()
	e.nudging.Lock()
	defer e.nudging.Unlock()
	e.ended = true
	return e.fabric.Close()
}

// linked reports whether a rank is to receive goodbyes: they are no reason to make a link.
func (e *Engine) linked(rank int) bool { return e.peers[rank] != nil || !e.policy.OnDemand }

// goodbyeLane is the lane for what a peer is to read behind all data: that of data, but where it would connect for this.
func (e *Engine) goodbyeLane(p *peer) *lane {
	if e.policy.LateData && !p.data.silentEnd && !p.data.used {
		return p.control
	}
	return p.data
}

// peer finds what is known of a rank. mu is held.
func (e *Engine) peer(rank int) *peer {
	p := e.peers[rank]
	if p == nil {
		p = newPeer(rank, e.fabric)
		e.peers[rank] = p
	}
	return p
}

// housekeeping is how often a rank that waits for nobody looks at its links: for failures of
// others, and for their questions.
const housekeeping = 250 * time.Millisecond

// attend is the attendant, a goroutine: it drives the links while all that wait sleep, or there are ops to be pursued, and looks
// after them now and then while there are none.
func (e *Engine) attend() {
	defer close(e.done)
	defer e.pursueTimer.Stop()
	tick := time.NewTicker(housekeeping)
	defer tick.Stop()
	for {
		select {
		case <-e.kick:
			e.serve()
		case <-e.pursueTimer.C:
			e.serve()
		case <-tick.C:
			e.mu.Lock()
			e.look()
			e.mu.Unlock()
		case <-e.stop:
			return
		}
	}
}

// serve drives the links while anyone sleeps.
func (e *Engine) serve() {
	defer e.fabric.Disarm()
	for {
		e.fabric.Arm() // from here on, news makes Sleep return
		for moved := true; moved; {
			e.mu.Lock()
			moved = e.look()
			idle := !e.attended() || e.closed
			e.mu.Unlock()
			if idle {
				return
			}
		}
		e.fabric.Sleep()
	}
}

// look takes what there is on all links, and tells whether that was anything. mu is held.
func (e *Engine) look() bool {
	if e.ended {
		return false
	}
	moved := false
	e.unread, e.visited = e.visited[:0], e.unread
	for _, l := range e.visited {
		l.isUnread = false
		moved = e.read(l, nil) || moved
	}
	e.ready = e.fabric.Ready(e.ready[:0])
	for _, news := range e.ready {
		l := e.peer(news.Rank).control
		if news.Data {
			l = l.peer.data
		}
		moved = e.read(l, nil) || moved
	}
	for _, rank := range e.fabric.Shared() {
		moved = e.read(e.peer(rank).data, nil) || moved
	}
	if len(e.writing) > 0 {
		moved = e.flushAll(true) || moved
	}
	if len(e.sleepers) > 0 {
		e.wakeReady()
	}
	return moved
}

// attended reports whether the attendant drives the links, or is about to. mu is held.
func (e *Engine) attended() bool { return len(e.sleepers) > 0 || e.pursued > 0 }

// wakeAttendant lets an attendant that still sleeps, though nobody else did any more, see to what the
// fabric has told of already. mu is held.
func (e *Engine) wakeAttendant() {
	if len(e.unread) > 0 {
		e.fabric.Wake()
	}
}

// pursueDelay is how long ops that nobody waits for wait for the attendant: mostly somebody waits before.
const pursueDelay = time.Millisecond

// Pursue makes a posted op go on though nobody waits for it.
func (g *Group) Pursue(op *Op) {
	e := g.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if op.Done() || op.pursued {
		return
	}
	op.pursued = true
	if e.pursued++; e.pursued == 1 {
		e.pursueTimer.Reset(pursueDelay)
	}
	e.wakeAttendant()
}
