package engine

import (
	"math"
	"sync"
	"time"

	"ddpbatch/mpi/internal/tick"
	"ddpbatch/mpi/transport"
)

// Engine is one rank's end of all its links. It turns streams of bytes into messages, and passes each message to the receive that waits for
// it. Its methods, and those of its groups, are safe for concurrent use.
type Engine struct {
	fabric  transport.Fabric
	options Options
	policy  transport.WaitPolicy
	piece   int // the number of bytes of a frame that are written before other links have their turn
	clock   tick.Clock

	mu            sync.Mutex // guards the fields below, and what they refer to
	peers         []*peer    // by world rank; nil if nothing has been sent or received yet
	groups        map[uint64]*Group
	closedGroups  map[uint64]struct{}   // closed groups, whose late frames are dropped
	closedInOrder []uint64              // the same, oldest first
	news          map[uint64]*groupNews // for groups that this rank has not joined yet
	answerTimeout time.Duration         // how long a rank whose wait has timed out waits for answers to its queries
	answered      *sync.Cond            // a peer has answered a query
	anySent       opList                // receives from any rank
	posted        uint64                // the number of receives so far
	writing       []*lane               // lanes that have something left to write
	sleepers      []*waiter
	unread        []*lane            // lanes that may have something to read that the fabric will not announce
	ready         []transport.LinkID // scratch of look
	visited       []*lane            // scratch of look
	earlyLimit    int                // the largest number of bytes of early messages
	earlyBytes    int                // the current number
	spare         pool               // memory for early messages
	waiters       []*waiter
	pursued       int // the number of ops that must go on although nobody waits for them
	closed        bool

	closeOnce func() error // calls close once

	nudging     sync.RWMutex
	ended       bool          // the fabric is closed; guarded by mu, and for reading by nudging
	kick        chan struct{} // receives when there is a sleeper
	pursueTimer *time.Timer   // fires when there is an op to pursue
	stop        chan struct{}
	done        chan struct{} // the attendant has ended
}

// Options configure an engine.
type Options struct {
	// Timeout is how long a rank waits without progress.
	Timeout time.Duration

	// Describe formats a call for errors. DescribeFully formats two calls that differ but read the same with Describe.
	Describe, DescribeFully func(Call) string

	// Label describes this rank in the errors of other ranks, for example by host and pid.
	Label string
}

// New starts an engine on the links of fabric. The engine closes fabric when it is closed.
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

// Rank returns this process's rank among all ranks.
func (e *Engine) Rank() int { return e.fabric.Rank() }

// Size returns the number of all ranks.
func (e *Engine) Size() int { return e.fabric.Size() }

// Close leaves all groups, sends a bye frame to each peer, and returns when the engine's goroutine has ended and the fabric is closed.
func (e *Engine) Close() error { return e.closeOnce() }

// closeLimit is how long Close waits at most for frames that are still to be written.
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

// linked reports whether a rank is to receive bye and leave frames: the engine does not make a link just for these.
func (e *Engine) linked(rank int) bool { return e.peers[rank] != nil || !e.policy.OnDemand }

// goodbyeLane returns the lane for a frame that a peer is to read after all data. It is the data lane, unless that would have to connect
// first.
func (e *Engine) goodbyeLane(p *peer) *lane {
	if e.policy.LateData && !p.data.silentEnd && !p.data.used {
		return p.control
	}
	return p.data
}

// peer returns the state of a peer. mu is held.
func (e *Engine) peer(rank int) *peer {
	p := e.peers[rank]
	if p == nil {
		p = newPeer(rank, e.fabric)
		e.peers[rank] = p
	}
	return p
}

// housekeeping is how often the engine looks at its links when no goroutine waits, to see failures and queries of other ranks.
const housekeeping = 250 * time.Millisecond

// attend is the attendant, a goroutine. It drives the links while all waiting goroutines sleep, or while there are ops to pursue. At other
// times it looks at the links now and then.
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

// serve drives the links while any goroutine sleeps.
func (e *Engine) serve() {
	defer e.fabric.Disarm()
	for {
		e.fabric.Arm() // from here on, new data makes Sleep return
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

// look reads what has arrived on all links, and writes what is queued. It reports whether any data moved. mu is held.
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

// wakeAttendant wakes the attendant if there may be data to read that the fabric has announced already. The attendant may still be asleep
// from a time when no other goroutine slept. mu is held.
func (e *Engine) wakeAttendant() {
	if len(e.unread) > 0 {
		e.fabric.Wake()
	}
}

// pursueDelay is how long ops that nobody waits for remain before the attendant drives them. Mostly, some goroutine waits for them earlier.
const pursueDelay = time.Millisecond

// Pursue makes a posted op proceed even if nobody waits for it.
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
