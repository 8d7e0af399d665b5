package engine

import (
	"fmt"
	"log/slog"
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
	manner  transport.Manner
	clock   tick.Clock

	mu       sync.Mutex // guards what follows, and what hangs on it
	peers    []*peer    // by world rank; nil where nothing was said yet
	groups   map[uint64]*Group
	gone     map[uint64]struct{} // groups that were closed: their late frames are nobody's
	buried   []uint64            // the same, oldest first
	news     map[uint64]*news    // of groups that this rank is not of yet
	answers  time.Duration       // how long a rank that has waited in vain waits for answers to its queries
	answered *sync.Cond          // a peer has answered a query
	anySent  opList              // receives from any rank
	posted   uint64              // receives so far
	writing  []*lane             // those that have something left to write
	sleepers []*waiter
	unread   []*lane          // those that may have something to read of which the fabric will not tell
	ready    []transport.News // scratch of look
	visited  []*lane          // scratch of look
	room     int              // how many bytes of early messages may be held
	held     int              // how many are
	spare    pool             // memory of early messages
	waiters  []*waiter
	pursued  int // ops that are to go on though nobody waits for them
	closed   bool

	closing  sync.Once
	closeErr error

	nudging sync.RWMutex
	ended   bool          // the fabric is closed; guarded by mu, and for reading by nudging
	kick    chan struct{} // there is a sleeper
	patrol  *time.Timer   // there is an op to be pursued
	stop    chan struct{}
	done    chan struct{} // the attendant has ended
}

// Options are what an engine is told.
type Options struct {
	// Timeout is how long a waiting rank bears no progress.
	Timeout time.Duration

	// Describe words a call in errors. DescribeFully words two that differ and read the same.
	Describe, DescribeFully func(Call) string

	// Label says who this rank is, for the others' errors: host and pid, say.
	Label string

	Log *slog.Logger // nil discards
}

// New starts an engine on the links of fabric, which it closes in the end.
func New(fabric transport.Fabric, options Options) *Engine {
	if options.Describe == nil {
		options.Describe = func(c Call) string { return fmt.Sprintf("%+v", c) }
	}
	if options.DescribeFully == nil {
		options.DescribeFully = func(c Call) string { return fmt.Sprintf("%+v", c) }
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		fabric: fabric, options: options, manner: fabric.Manner(), clock: tick.NewClock(),
		peers:  make([]*peer, fabric.Size()),
		groups: make(map[uint64]*Group), gone: make(map[uint64]struct{}), news: make(map[uint64]*news),
		room: maxEarly, answers: answers, patrol: time.NewTimer(time.Hour),
		kick: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	e.answered = sync.NewCond(&e.mu)
	go e.attend()
	return e
}

// Rank is this process's place among all ranks.
func (e *Engine) Rank() int { return e.fabric.Rank() }

// Size is the number of all ranks.
func (e *Engine) Size() int { return e.fabric.Size() }

// peer finds what is known of a rank. mu is held.
func (e *Engine) peer(rank int) *peer {
	p := e.peers[rank]
	if p == nil {
		p = newPeer(rank, e.fabric)
		e.peers[rank] = p
	}
	return p
}
