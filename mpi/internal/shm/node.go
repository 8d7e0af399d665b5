package shm

import (
	"fmt"
	"math/bits"
)

// Node is one rank's part in the collectives of a group whose ranks all share memory. Its calls
// are collective: all ranks make the same ones in the same order, with the same lengths. A Node is for
// one goroutine at a time. No call allocates.
//
// Every call begins with a line of its own in memory, which holds the caller's Stamp: it returns a
// StampError on every rank, before any data is touched, if the stamps differ. It thus waits for all ranks. Data
// goes one of three ways, which all ranks choose alike:
//
//   - inline: short data lies beside the stamps, and each rank takes what it needs, or, of what is to be reduced and not very
//     short, combines a part, and leaves the result there;
//   - direct: where all ranks' buffers are in registered segments, they read and write
//     each other's;
//   - staged: else buffers pass in chunks through memory that stays in the cache.
//
// Reductions keep the canonical order of package algorithm on all of them.
//
// After an error the Node is of no more use, and each call returns that error again.
type Node struct {
	rank    int
	ranks   []rankState
	regions [][][]byte // registered segments, by region and rank
	err     error

	seq   uint64 // the number of the call
	stamp Stamp
	fault error // what hasEntered found

	clocks [clockKinds]uint64 // this rank's
	kind   int                // which clock of the others is waited for,
	goal   uint64             // to be what,
	next   int                // by the ranks from here on

	sources, targets [][]byte // of the piece that is combined: by rank; in the order of writing
	scratch          [][]byte // of combine, by level

	hasEntered, hasReached func() bool // made once, for Await
}

// rankState is what a rank knows of another, or of itself.
type rankState struct {
	area
	seen uint64 // the last call that it is known to be in
	ref  uint64 // of its slot there
	view []byte // its registered buffer
}

// NewNode makes rank's part. areas are the segments of all ranks, by rank: each made by its rank with
// AreaSize bytes, for this Node alone. They must stay open as long as the Node is used.
func NewNode(rank int, areas []*Segment) (*Node, error) {
	if len(areas) > MaxRanks || rank < 0 || rank >= len(areas) {
		return nil, fmt.Errorf("rank %d in shared memory of %d", rank, len(areas))
	}
	n := &Node{rank: rank, ranks: make([]rankState, len(areas))}
	for r, s := range areas {
		a, err := newArea(s)
		if err != nil {
			return nil, fmt.Errorf("shared memory of rank %d: %w", r, err)
		}
		n.ranks[r].area = a
	}
	n.sources = make([][]byte, len(areas))
	n.targets = make([][]byte, 0, len(areas))
	n.scratch = make([][]byte, bits.Len(uint(len(areas)))+1)
	for i := range n.scratch {
		n.scratch[i] = make([]byte, foldBlock)
	}
	n.hasEntered, n.hasReached = n.entered, n.reached
	return n, nil
}

// Register makes a region known: memory of all ranks that calls may be given buffers from. segs are the
// ranks' segments by rank; all ranks register the same ones in the same order, between the same two calls.
func (n *Node) Register(segs []*Segment) error {
	if len(segs) != len(n.ranks) || len(n.regions) == maxRegions {
		return fmt.Errorf("register segments of %d ranks as region %d, in a group of %d", len(segs), len(n.regions), len(n.ranks))
	}
	region := make([][]byte, len(segs))
	for r, s := range segs {
		region[r] = s.Bytes()
	}
	n.regions = append(n.regions, region)
	return nil
}

func (n *Node) checkRoot(root int) error {
	if root < 0 || root >= len(n.ranks) {
		return fmt.Errorf("root %d in shared memory of %d", root, len(n.ranks))
	}
	return nil
}
