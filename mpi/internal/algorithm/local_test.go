package algorithm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"ddpbatch/internal/testkit"
)

// localGroup is a group whose ranks are goroutines of the test, with mailboxes that have no
// bound. It holds algorithms to the rules of Port, and reckons what they cost.
//
// The zero value delivers a message as soon as its send and its receive are posted.
type localGroup struct {
	// Lazy delivers only when a rank is blocked, messages of different pairs in random order.
	Lazy bool
	// Rendezvous holds a send back from being done until it is delivered.
	Rendezvous bool
	Seed       uint64

	// FailRank's Wait fails for good from call number FailWait on, counted from 1; 0: never.
	FailRank, FailWait int

	// Machine moves the ranks' clocks (see localPort.clock). The zero Machine takes no time.
	Machine Machine
}

// localTraffic is what a run cost.
type localTraffic struct {
	Messages []int   // sent by each rank
	Bytes    []int   // sent by each rank
	Rounds   int     // messages in the longest chain where each was sent after the one before had come
	Time     float64 // of the slowest rank's clock, in seconds
}

// Sum of what all ranks sent.
func (c localTraffic) Sum() (messages, bytes int) {
	for i := range c.Messages {
		messages += c.Messages[i]
		bytes += c.Bytes[i]
	}
	return messages, bytes
}

var (
	errInjected = errors.New("injected failure")
	errDeadlock = errors.New("deadlock: every rank waits for something that nobody does")
)

// Run runs f as every rank, and fails the test on any error.
func (g localGroup) Run(t testing.TB, size int, f func(p *localPort) error) localTraffic {
	t.Helper()
	traffic, errs := g.Try(size, f)
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d of %d: %v", rank, size, err)
			defer t.FailNow()
		}
	}
	return traffic
}

// Try runs f as every rank, and returns the ranks' errors.
func (g localGroup) Try(size int, f func(p *localPort) error) (localTraffic, []error) {
	w := &localWorld{localGroup: g, size: size, running: size, pairs: make([]localPair, size*size),
		random: rand.New(rand.NewPCG(g.Seed, 1))}
	w.changed.L = &w.mu
	w.ports = make([]*localPort, size)
	for rank := range size {
		w.ports[rank] = &localPort{world: w, rank: rank}
	}
	errs := testkit.Each(size, func(rank int) error {
		p := w.ports[rank]
		err := f(p)
		return p.leave(err)
	})
	traffic := localTraffic{Messages: make([]int, size), Bytes: make([]int, size)}
	for rank, p := range w.ports {
		traffic.Messages[rank], traffic.Bytes[rank] = p.messages, p.bytes
		for _, block := range p.borrowed {
			lent.Put(block)
		}
		traffic.Rounds, traffic.Time = max(traffic.Rounds, p.round), max(traffic.Time, p.clock)
	}
	for i := range w.pairs {
		if n := len(w.pairs[i].sends); n > 0 && errs[i%size] == nil {
			errs[i%size] = fmt.Errorf("%d messages from rank %d left over", n, i/size)
		}
	}
	return traffic, errs
}

type localWorld struct {
	localGroup
	size int

	mu      sync.Mutex
	changed sync.Cond
	random  *rand.Rand
	ports   []*localPort
	pairs   []localPair // that from i to j at i*size+j
	ready   []int       // pairs with a message whose send and receive are posted, once for each message
	running int         // ranks that have not left
	err     error       // what broke the group
}

// localPair has the posted sends and receives of a pair that are not delivered yet, in order.
type localPair struct{ sends, recvs []*localOp }

// localOp is a posted send or receive.
type localOp struct {
	from, to     int
	send         bool
	buf          []byte
	sent         []byte // send: what buf was when posted
	done, waited bool

	round       int     // of the message
	first, gone float64 // when its first byte arrives, when its last one has left
}

func (o *localOp) String() string {
	if o.send {
		return fmt.Sprintf("send of %d bytes from rank %d to %d", len(o.buf), o.from, o.to)
	}
	return fmt.Sprintf("receive of %d bytes by rank %d from %d", len(o.buf), o.to, o.from)
}

// match notes that one more message of a pair can be delivered.
func (w *localWorld) match(pair int) {
	w.ready = append(w.ready, pair)
	if !w.Lazy {
		w.deliver(len(w.ready) - 1)
	}
}

// deliver delivers the first message of the i'th ready pair.
func (w *localWorld) deliver(i int) {
	pair := &w.pairs[w.ready[i]]
	last := len(w.ready) - 1
	w.ready[i] = w.ready[last]
	w.ready = w.ready[:last]
	s, r := pair.sends[0], pair.recvs[0]
	pair.sends, pair.recvs = pair.sends[1:], pair.recvs[1:]
	if len(s.buf) != len(r.buf) {
		w.fail(fmt.Errorf("%v meets %v", s, r))
		return
	}
	copy(r.buf, s.sent)
	r.round, r.first = s.round, s.first
	s.done, r.done = true, true
	w.changed.Broadcast()
}

// fail breaks the group; the first error stays.
func (w *localWorld) fail(err error) {
	if w.err == nil {
		w.err = err
	}
	w.changed.Broadcast()
}

// stuck tells whether no rank can go on.
func (w *localWorld) stuck() bool {
	blocked := 0
	for _, p := range w.ports {
		if p.blocked != nil && !p.blocked.done {
			blocked++
		}
	}
	return blocked == w.running
}
