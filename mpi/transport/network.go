package transport

import (
	"fmt"
	"sync"
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
