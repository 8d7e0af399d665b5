package algorithm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"ddpbatch/internal/testkit"
)

// localGroup is a group whose ranks are goroutines of the test, with unbounded mailboxes. It checks that algorithms keep the rules of Port,
// and computes what they cost.
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

// copies reports whether a rank moves the bytes itself, so that it can only send, receive or reduce at a time.
func (g localGroup) copies() bool { return g.Machine.Both > g.Machine.Beta }

// localTraffic is the cost of a run.
type localTraffic struct {
	Messages []int   // sent by each rank
	Bytes    []int   // sent by each rank
	Rounds   int     // number of messages in the longest chain in which each was sent after the one before had arrived
	Time     float64 // the slowest rank's clock, in seconds
}

// Sum returns the messages and bytes that all ranks sent.
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
		if err == nil {
			err = p.catchUp()
		}
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
	pairs   []localPair // the pair from i to j is at i*size+j
	ready   []int       // pairs with a message whose send and receive are posted, once for each message
	running int         // ranks that have not left
	err     error       // the error that broke the group
}

// localPair has the posted sends and receives of a pair that have not been delivered yet, in order.
type localPair struct{ sends, recvs []*localOp }

// localOp is a posted send or receive.
type localOp struct {
	from, to     int
	send         bool
	buf          []byte
	sent         []byte // of a send: the content of buf when it was posted
	done, waited bool

	round       int     // the round of the message
	first, gone float64 // when the message's first byte arrives, and when its last byte has left
}

func (o *localOp) String() string {
	if o.send {
		return fmt.Sprintf("send of %d bytes from rank %d to %d", len(o.buf), o.from, o.to)
	}
	return fmt.Sprintf("receive of %d bytes by rank %d from %d", len(o.buf), o.to, o.from)
}

// match records that one more message of a pair can be delivered.
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

// fail breaks the group. The first error is kept.
func (w *localWorld) fail(err error) {
	if w.err == nil {
		w.err = err
	}
	w.changed.Broadcast()
}

// stuck reports whether no rank can go on.
func (w *localWorld) stuck() bool {
	blocked := 0
	for _, p := range w.ports {
		if p.blocked != nil && !p.blocked.done {
			blocked++
		}
	}
	return blocked == w.running
}

// idlePort is a rank's port in a group in which everything is done at once, and no data moves.
type idlePort struct {
	rank, size int
	scratch    []byte
	handles    []Handle
}

func (p *idlePort) Rank() int               { return p.rank }
func (p *idlePort) Size() int               { return p.size }
func (p *idlePort) Send(int, []byte) Handle { return 0 }
func (p *idlePort) Recv(int, []byte) Handle { return 0 }
func (p *idlePort) Wait(Handle) error       { return nil }
func (p *idlePort) Notify(int)              {}
func (p *idlePort) Expect(int)              {}
func (p *idlePort) Scratch(n int) []byte    { return p.scratch[:n] }
func (p *idlePort) Handles(n int) []Handle  { return p.handles[:n:n] }

// localPort is a rank's Port in a localGroup.
type localPort struct {
	world *localWorld
	rank  int

	ops     []*localOp
	pending []*localOp // not waited for yet
	later   []Handle   // the handles of Notify and Expect
	blocked *localOp   // the operation that Wait waits for
	waits   int

	borrowed []*[]byte

	messages, bytes, round int

	// clock is the rank's own time. A port sends its messages one after another, and receives them one after another. Each takes Beta a
	// byte and a share of Alpha. receiving is the time that the messages to the port have taken so far.
	clock, sending, receiving float64
}

var _ Port = (*localPort)(nil)

func (p *localPort) Rank() int { return p.rank }
func (p *localPort) Size() int { return p.world.size }

// Scratch returns memory that is full of junk.
func (p *localPort) Scratch(n int) []byte {
	b := p.borrow(n)
	fill(b, 0xCC)
	return b
}

// lent is memory that ranks have borrowed and given back. Fresh memory would take most of the time of a run.
var lent sync.Pool

// borrow returns n bytes that are this rank's until the run ends.
func (p *localPort) borrow(n int) []byte {
	const align = 64
	block, _ := lent.Get().(*[]byte)
	if block == nil || len(*block) < n+align {
		b := make([]byte, max(2*n, 1<<10)+align)
		block = &b
	}
	p.borrowed = append(p.borrowed, block)
	start := -int(uintptr(unsafe.Pointer(&(*block)[0]))) & (align - 1)
	return (*block)[start : start+n : start+n]
}

// fill sets the bytes at both ends of b.
func fill(b []byte, value byte) {
	const end = 64
	for i := range min(end, len(b)) {
		b[i], b[len(b)-1-i] = value, value
	}
}

func (p *localPort) Handles(n int) []Handle {
	handles := make([]Handle, n)
	for i := range handles {
		handles[i] = -1
	}
	return handles
}

func (p *localPort) Send(to int, buf []byte) Handle {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := p.borrow(len(buf))
	copy(sent, buf)
	start := max(p.clock, p.sending)
	p.sending = start + queued*w.Machine.Alpha + float64(len(buf))*w.Machine.Beta
	if w.copies() {
		p.clock = p.sending
	}
	p.messages++
	p.bytes += len(buf)
	return p.post(&localOp{from: p.rank, to: to, send: true, buf: buf, sent: sent, done: !w.Rendezvous,
		round: p.round + 1, first: start + w.Machine.Alpha, gone: p.sending})
}

func (p *localPort) Recv(from int, buf []byte) Handle {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	o := &localOp{from: from, to: p.rank, buf: buf}
	t := p.post(o)
	if !o.done && w.err == nil {
		fill(buf, 0xAA) // undefined until the wait
	}
	return t
}

// post records o after checking it against the rules. The caller holds the lock.
func (p *localPort) post(o *localOp) Handle {
	w := p.world
	switch {
	case o.from == o.to:
		w.fail(fmt.Errorf("%v: to itself", o))
	case o.from < 0 || o.from >= w.size || o.to < 0 || o.to >= w.size:
		w.fail(fmt.Errorf("%v: no such rank in a group of %d", o, w.size))
	}
	for _, other := range p.pending {
		if !(o.send && other.send) && overlap(o.buf, other.buf) {
			w.fail(fmt.Errorf("%v: its buffer is that of a pending %v", o, other))
		}
	}
	p.ops = append(p.ops, o)
	p.pending = append(p.pending, o)
	if w.err == nil {
		i := o.from*w.size + o.to
		pair := &w.pairs[i]
		sends, recvs := len(pair.sends), len(pair.recvs)
		if o.send {
			pair.sends = append(pair.sends, o)
		} else {
			pair.recvs = append(pair.recvs, o)
		}
		if min(len(pair.sends), len(pair.recvs)) > min(sends, recvs) {
			w.match(i)
		}
	}
	return Handle(len(p.ops) - 1)
}

func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	aLow, bLow := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return aLow < bLow+uintptr(len(b)) && bLow < aLow+uintptr(len(a))
}

func (p *localPort) Wait(t Handle) error {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	p.waits++
	if w.FailWait > 0 && p.rank == w.FailRank && p.waits >= w.FailWait {
		w.fail(errInjected)
	}
	if t < 0 || int(t) >= len(p.ops) {
		w.fail(fmt.Errorf("rank %d waits for handle %d, which it was not given", p.rank, t))
		return w.err
	}
	o := p.ops[t]
	p.block(o)
	if w.err != nil {
		return w.err
	}
	if o.waited {
		return nil
	}
	o.waited = true
	for i, other := range p.pending {
		if other == o {
			p.pending[i] = p.pending[len(p.pending)-1]
			p.pending = p.pending[:len(p.pending)-1]
			break
		}
	}
	if o.send {
		p.clock = max(p.clock, o.gone)
		if !bytes.Equal(o.buf, o.sent) {
			w.fail(fmt.Errorf("%v: its buffer was changed before Wait", o))
		}
		return w.err
	}
	p.round = max(p.round, o.round)
	if w.copies() {
		p.clock = max(p.clock+queued*w.Machine.Alpha, o.first) + float64(len(o.buf))*w.Machine.Beta
		return nil
	}
	p.receiving += queued*w.Machine.Alpha + float64(len(o.buf))*w.Machine.Beta
	p.clock = max(p.clock, p.receiving, o.first+float64(len(o.buf))*w.Machine.Beta)
	return nil
}

func (p *localPort) Notify(to int)   { p.later = append(p.later, p.Send(to, nil)) }
func (p *localPort) Expect(from int) { p.later = append(p.later, p.Recv(from, nil)) }

// catchUp waits for the operations that the algorithm has not waited for. The rank's own time stands still.
func (p *localPort) catchUp() error {
	round, clock := p.round, p.clock
	defer func() { p.round, p.clock = round, clock }()
	for _, h := range p.later {
		if err := p.Wait(h); err != nil {
			return err
		}
	}
	return nil
}

// block returns when o is done or the group is broken.
func (p *localPort) block(o *localOp) {
	w := p.world
	p.blocked = o
	defer func() { p.blocked = nil }()
	for !o.done && w.err == nil {
		switch {
		case len(w.ready) > 0:
			w.deliver(w.random.IntN(len(w.ready)))
		case w.stuck():
			w.fail(fmt.Errorf("%w: %v", errDeadlock, o))
		default:
			w.changed.Wait()
		}
	}
}

// Reduce adds the time that a kernel takes for n bytes.
func (p *localPort) Reduce(n int) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.clock += float64(n) * p.world.Machine.Gamma
}

// leave ends the rank's part, which returned err.
func (p *localPort) leave(err error) error {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	w.changed.Broadcast() // the other ranks deliver what it has posted
	for _, o := range p.ops {
		if err == nil && !o.waited {
			err = fmt.Errorf("%v was not waited for", o)
		}
	}
	switch {
	case err != nil:
		w.fail(err)
	case len(w.ready) > 0:
		w.changed.Broadcast() // a blocked rank delivers
	case w.running > 0 && w.stuck():
		w.fail(errDeadlock)
	}
	return err
}
