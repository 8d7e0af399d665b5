package transport

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Network joins ranks that live in one process: for tests, with the faults that real networks have,
// and wherever ranks are goroutines. What befalls ranks befalls both links between them. Its methods are safe for concurrent use.
type Network struct {
	nodes []*node

	mu    sync.RWMutex
	delay time.Duration
	drop  func(from, to int) bool
	cut   map[[2]int]bool // by ordered pair
}

// NewNetwork makes a network of size ranks.
func NewNetwork(size int) *Network {
	n := &Network{nodes: make([]*node, size), cut: make(map[[2]int]bool)}
	for rank := range n.nodes {
		n.nodes[rank] = &node{rank: rank, network: n, inboxes: make(map[News]*inbox), news: make(chan struct{}, 1)}
	}
	return n
}

// Fabric is a rank's end of the network. It is used once.
func (n *Network) Fabric(rank int) (Fabric, error) {
	if rank < 0 || rank >= len(n.nodes) {
		return nil, fmt.Errorf("there is no rank %d in a network of %d", rank, len(n.nodes))
	}
	node := n.nodes[rank]
	node.mu.Lock()
	defer node.mu.Unlock()
	if node.taken {
		return nil, fmt.Errorf("rank %d of the network is there already", rank)
	}
	node.taken = true
	return node, nil
}

// Delay makes whatever is written from now on arrive so much later.
func (n *Network) Delay(d time.Duration) {
	n.mu.Lock()
	n.delay = d
	n.mu.Unlock()
}

// Drop loses every frame from now on of which f says so.
func (n *Network) Drop(f func(from, to int) bool) {
	n.mu.Lock()
	n.drop = f
	n.mu.Unlock()
}

// Cut loses, without a word to anybody, whatever the two ranks write to each other from now on.
func (n *Network) Cut(a, b int) {
	n.mu.Lock()
	n.cut[[2]int{a, b}], n.cut[[2]int{b, a}] = true, true
	n.mu.Unlock()
}

// Kill ends a rank as the end of its process would.
func (n *Network) Kill(rank int) { n.nodes[rank].end(killed) }

// route tells how what from writes to to fares.
func (n *Network) route(from, to int) (delay time.Duration, lost bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.delay, n.cut[[2]int{from, to}] || n.drop != nil && n.drop(from, to)
}

// Size is the number of ranks.
func (n *Network) Size() int { return len(n.nodes) }

// node is one rank of a Network, and its Fabric.
type node struct {
	rank    int
	network *Network
	news    chan struct{} // holds one

	ended atomic.Int32 // 0, closed or killed

	mu      sync.Mutex
	taken   bool
	inboxes map[News]*inbox // by sender and link
	fresh   []News          // what Ready has not told yet
}

// How a node ends.
const (
	closed int32 = iota + 1
	killed
)

// inbox is what one rank has written to another.
type inbox struct {
	buf    []byte // buf[r:] is unread
	r      int
	marks  []mark // of what has not arrived yet; oldest first
	closed bool
	fresh  bool // it is in node.fresh
}

// mark says when the bytes from start to the next mark's start arrive.
type mark struct {
	start int
	at    time.Time
}

func (n *node) Rank() int { return n.rank }
func (n *node) Size() int { return len(n.network.nodes) }

// Manner: ranks of one process that poll would take the processor from those that they wait for.
func (n *node) Manner() Manner { return Manner{OnDemand: true} }

func (n *node) Control(rank int) Link { return localLink{n, n.network.nodes[rank], false} }
func (n *node) Data(rank int) Link    { return localLink{n, n.network.nodes[rank], true} }
func (n *node) Shared() []int         { return nil }
func (n *node) Arm()                  {}
func (n *node) Disarm()               {}
func (n *node) Sleep()                { <-n.news }

func (n *node) Wake() {
	select {
	case n.news <- struct{}{}:
	default:
	}
}

// Nudge needs not ask whether the rank is armed.
func (n *node) Nudge(rank int) { n.network.nodes[rank].Wake() }

func (n *node) Ready(news []News) []News {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.fresh {
		n.inboxes[one].fresh = false
	}
	news = append(news, n.fresh...)
	n.fresh = n.fresh[:0]
	return news
}

func (n *node) Close() error {
	n.end(closed)
	return nil
}

// end closes the links of the rank: the others read what it has written, then io.EOF. Those between whom and it nothing ever
// went are told only if it is killed.
func (n *node) end(how int32) {
	n.ended.CompareAndSwap(0, how)
	n.mu.Lock()
	if how == killed { // what goes on of it finds out that its own ends are closed
		for _, other := range n.network.nodes {
			if other != n {
				n.tell(News{other.rank, false})
				n.tell(News{other.rank, true})
			}
		}
	}
	n.mu.Unlock()
	control, data := News{n.rank, false}, News{n.rank, true}
	for _, other := range n.network.nodes {
		if other == n {
			continue
		}
		other.mu.Lock()
		if how == killed || other.inboxes[control] != nil || other.inboxes[data] != nil {
			for _, from := range [2]News{control, data} {
				other.inbox(from).closed = true
				other.tell(from)
			}
		}
		other.mu.Unlock()
	}
}

// tell makes Ready name a link. mu is held.
func (n *node) tell(from News) {
	if b := n.inbox(from); !b.fresh {
		b.fresh = true
		n.fresh = append(n.fresh, from)
	}
	n.Wake()
}

func (n *node) inbox(from News) *inbox {
	b := n.inboxes[from]
	if b == nil {
		b = &inbox{}
		n.inboxes[from] = b
	}
	return b
}

// localLink is a Link from one node to another.
type localLink struct {
	here, there *node
	data        bool
}

// Write takes everything.
func (l localLink) Write(head, body []byte) (int, error) {
	if l.here.ended.Load() != 0 || l.there.ended.Load() != 0 {
		return 0, net.ErrClosed
	}
	size := len(head) + len(body)
	delay, lost := l.here.network.route(l.here.rank, l.there.rank)
	if lost {
		return size, nil
	}
	to, from := l.there, News{l.here.rank, l.data}
	to.mu.Lock()
	defer to.mu.Unlock()
	b := to.inbox(from)
	if delay > 0 || len(b.marks) > 0 {
		b.marks = append(b.marks, mark{start: len(b.buf), at: time.Now().Add(delay)})
		time.AfterFunc(delay, func() {
			to.mu.Lock()
			defer to.mu.Unlock()
			to.tell(from)
		})
	}
	if len(b.marks) == 0 && b.r > len(b.buf)/2 { // or a reader that lags a little would make it grow for ever
		b.buf, b.r = b.buf[:copy(b.buf, b.buf[b.r:])], 0
	}
	b.buf = append(append(b.buf, head...), body...)
	to.tell(from)
	return size, nil
}

// Read sees the end of a rank that left in peace though it told nothing of it here: that did not know of the link.
func (l localLink) Read(buf []byte) (int, error) {
	n, how := l.here, l.there.ended.Load() // before looking for what was written until then
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended.Load() != 0 {
		return 0, net.ErrClosed
	}
	b := n.inbox(News{l.there.rank, l.data})
	for len(b.marks) > 0 && !time.Now().Before(b.marks[0].at) {
		b.marks = b.marks[1:]
	}
	end := len(b.buf)
	if len(b.marks) > 0 {
		end = b.marks[0].start
	}
	switch drained := b.r == end && len(b.marks) == 0; {
	case drained && how == closed:
		return 0, ErrClosedThere
	case drained && b.closed:
		return 0, io.EOF
	}
	k := copy(buf, b.buf[b.r:end])
	if b.r += k; b.r == len(b.buf) {
		b.buf, b.r = b.buf[:0], 0
	}
	return k, nil
}
