package shm

import "fmt"

// AllToAll sends block i of in to rank i, where it becomes the block of this rank in out. in and out have the same length, a whole number
// of equal blocks, and do not overlap.
func (n *Node) AllToAll(w Waiter, stamp Stamp, out, in []byte) error {
	if len(in)%len(n.ranks) != 0 || len(out) != len(in) {
		return n.fail(fmt.Errorf("blocks of %d bytes for %d ranks, and %d bytes of room", len(in), len(n.ranks), len(out)))
	}
	fits := len(in) <= inlineSize
	var inline []byte
	if fits {
		inline = in
	}
	if err := n.enter(w, stamp, 0, inline); err != nil {
		return err
	}
	size := len(in) / len(n.ranks)
	if !fits {
		return n.allToAllStaged(w, out, in, size)
	}
	copy(window(out, n.rank, size), window(in, n.rank, size))
	for i := range n.ranks {
		if i != n.rank {
			copy(window(out, i, size), window(n.ranks[i].data(n.parity(), len(in)), n.rank, size))
		}
	}
	return nil
}

// allToAllStaged passes blocks of size bytes piece by piece.
func (n *Node) allToAllStaged(w Waiter, out, in []byte, size int) error {
	part := chunkSize / len(n.ranks) / line * line
	copy(window(out, n.rank, size), window(in, n.rank, size))
	return n.stream(w, roundsOf(size, part), func(round int) {
		for i := range n.ranks {
			if i != n.rank {
				piece := window(window(in, i, size), round, part)
				copy(n.stage(n.rank, round, i*part, i*part+len(piece)), piece)
			}
		}
	}, func(round int) {
		for i := range n.ranks {
			if i != n.rank {
				piece := window(window(out, i, size), round, part)
				copy(piece, n.stage(i, round, n.rank*part, n.rank*part+len(piece)))
			}
		}
	})
}
