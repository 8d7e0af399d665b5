package transport

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Network joins ranks that live in one process: for tests, with the faults that real networks have, and for ranks that are goroutines. A
// fault between two ranks affects both links between them. Its methods are safe for concurrent use.
type Network struct {
	ranks []*networkRank

	mu    sync.RWMutex
	delay time.Duration
	drop  func(from, to int) bool
	cut   map[[2]int]bool // by ordered pair
}

// NewNetwork returns a network of size ranks.
func NewNetwork(size int) *Network {
	n := &Network{ranks: make([]*networkRank, size), cut: make(map[[2]int]bool)}
	for rank := range n.ranks {
		n.ranks[rank] = &networkRank{rank: rank, network: n, inboxes: make(map[LinkID]*inbox), wakeup: make(chan struct{}, 1)}
	}
	return n
}

// Fabric returns a rank's end of the network. It may be called once for each rank.
func (n *Network) Fabric(rank int) (Fabric, error) {
	if rank < 0 || rank >= len(n.ranks) {
		return nil, fmt.Errorf("rank %d does not exist: the network has the ranks 0 to %d", rank, len(n.ranks)-1)
	}
	r := n.ranks[rank]
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken {
		return nil, fmt.Errorf("rank %d of the network is in use already", rank)
	}
	r.taken = true
	return r, nil
}

// Delay delays by d everything that is written from now on.
func (n *Network) Delay(d time.Duration) {
	n.mu.Lock()
	n.delay = d
	n.mu.Unlock()
}

// Drop drops every later write for which f returns true.
func (n *Network) Drop(f func(from, to int) bool) {
	n.mu.Lock()
	n.drop = f
	n.mu.Unlock()
}

// Cut drops, silently, everything that the two ranks write to each other from now on.
func (n *Network) Cut(a, b int) {
	n.mu.Lock()
	n.cut[[2]int{a, b}], n.cut[[2]int{b, a}] = true, true
	n.mu.Unlock()
}

// Kill ends a rank as the end of its process would.
func (n *Network) Kill(rank int) { n.ranks[rank].end(endKilled) }

// faults returns the faults for a write from one rank to another.
func (n *Network) faults(from, to int) (delay time.Duration, lost bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.delay, n.cut[[2]int{from, to}] || n.drop != nil && n.drop(from, to)
}

// Size returns the number of ranks.
func (n *Network) Size() int { return len(n.ranks) }

// networkRank is one rank of a Network, and its Fabric.
type networkRank struct {
	rank    int
	network *Network
	wakeup  chan struct{} // with room for one

	ended atomic.Int32 // 0, closed or killed

	mu      sync.Mutex
	taken   bool
	inboxes map[LinkID]*inbox // by sender and link
	ready   []LinkID          // links that Ready has not returned yet
}

// How a rank ends.
const (
	endClosed int32 = iota + 1
	endKilled
)

// inbox has the bytes that one rank has written to another.
type inbox struct {
	buf    []byte // buf[r:] is unread
	r      int
	marks  []mark // for bytes that have not arrived yet, oldest first
	closed bool
	ready  bool // its link is in the reader's ready
}

// mark is the time at which the bytes from start to the next mark's start arrive.
type mark struct {
	start int
	at    time.Time
}

func (n *networkRank) Rank() int { return n.rank }
func (n *networkRank) Size() int { return len(n.network.ranks) }

// WaitPolicy returns a policy without polling: ranks of one process that poll would take the processor from those for which they wait.
func (n *networkRank) WaitPolicy() WaitPolicy { return WaitPolicy{OnDemand: true} }

func (n *networkRank) Control(rank int) Link { return networkLink{n, n.network.ranks[rank], false} }
func (n *networkRank) Data(rank int) Link    { return networkLink{n, n.network.ranks[rank], true} }
func (n *networkRank) Shared() []int         { return nil }
func (n *networkRank) Arm()                  {}
func (n *networkRank) Disarm()               {}
func (n *networkRank) Sleep()                { <-n.wakeup }

func (n *networkRank) Wake() {
	select {
	case n.wakeup <- struct{}{}:
	default:
	}
}

// WakeRank wakes the rank whether it is armed or not.
func (n *networkRank) WakeRank(rank int) { n.network.ranks[rank].Wake() }

func (n *networkRank) Ready(links []LinkID) []LinkID {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, link := range n.ready {
		n.inboxes[link].ready = false
	}
	links = append(links, n.ready...)
	n.ready = n.ready[:0]
	return links
}

func (n *networkRank) Close() error {
	n.end(endClosed)
	return nil
}

// end closes the links of the rank. The other ranks read what it has written, and then io.EOF. A rank that never exchanged anything with it
// is notified only if it is killed.
func (n *networkRank) end(how int32) {
	n.ended.CompareAndSwap(0, how)
	n.mu.Lock()
	if how == endKilled { // the rank's own code, if it goes on, finds its ends closed
		for _, other := range n.network.ranks {
			if other != n {
				n.markReady(LinkID{other.rank, false})
				n.markReady(LinkID{other.rank, true})
			}
		}
	}
	n.mu.Unlock()
	control, data := LinkID{n.rank, false}, LinkID{n.rank, true}
	for _, other := range n.network.ranks {
		if other == n {
			continue
		}
		other.mu.Lock()
		if how == endKilled || other.inboxes[control] != nil || other.inboxes[data] != nil {
			for _, from := range [2]LinkID{control, data} {
				other.inbox(from).closed = true
				other.markReady(from)
			}
		}
		other.mu.Unlock()
	}
}

// markReady makes Ready return a link. mu is held.
func (n *networkRank) markReady(from LinkID) {
	if b := n.inbox(from); !b.ready {
		b.ready = true
		n.ready = append(n.ready, from)
	}
	n.Wake()
}

func (n *networkRank) inbox(from LinkID) *inbox {
	b := n.inboxes[from]
	if b == nil {
		b = &inbox{}
		n.inboxes[from] = b
	}
	return b
}

// networkLink is a Link from one rank to another.
type networkLink struct {
	here, there *networkRank
	data        bool
}

// Write always takes everything.
func (l networkLink) Write(head, body []byte) (int, error) {
	if l.here.ended.Load() != 0 || l.there.ended.Load() != 0 {
		return 0, net.ErrClosed
	}
	size := len(head) + len(body)
	delay, lost := l.here.network.faults(l.here.rank, l.there.rank)
	if lost {
		return size, nil
	}
	to, from := l.there, LinkID{l.here.rank, l.data}
	to.mu.Lock()
	defer to.mu.Unlock()
	b := to.inbox(from)
	if delay > 0 || len(b.marks) > 0 {
		b.marks = append(b.marks, mark{start: len(b.buf), at: time.Now().Add(delay)})
		time.AfterFunc(delay, func() {
			to.mu.Lock()
			defer to.mu.Unlock()
			to.markReady(from)
		})
	}
	if len(b.marks) == 0 && b.r > len(b.buf)/2 { // otherwise a reader that is a little behind would make it grow for ever
		b.buf, b.r = b.buf[:copy(b.buf, b.buf[b.r:])], 0
	}
	b.buf = append(append(b.buf, head...), body...)
	to.markReady(from)
	return size, nil
}

// Read also notices the end of a rank that has left without marking anything here, because it did not know about the link.
func (l networkLink) Read(buf []byte) (int, error) {
	n, how := l.here, l.there.ended.Load() // before looking for what was written until then
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended.Load() != 0 {
		return 0, net.ErrClosed
	}
	b := n.inbox(LinkID{l.there.rank, l.data})
	for len(b.marks) > 0 && !time.Now().Before(b.marks[0].at) {
		b.marks = b.marks[1:]
	}
	end := len(b.buf)
	if len(b.marks) > 0 {
		end = b.marks[0].start
	}
	switch allRead := b.r == end && len(b.marks) == 0; {
	case allRead && how == endClosed:
		return 0, ErrClosedThere
	case allRead && b.closed:
		return 0, io.EOF
	}
	k := copy(buf, b.buf[b.r:end])
	if b.r += k; b.r == len(b.buf) {
		b.buf, b.r = b.buf[:0], 0
	}
	return k, nil
}
