package shm

import "fmt"

// AllToAll sends block i of in to rank i, where it becomes the block of this rank in out. in and
// out do not overlap. The blocks of two ranks for each other agree in length, which is not checked.
// It is always staged.
func (n *Node) AllToAll(w Waiter, stamp Stamp, out []byte, outAt []int, in []byte, inAt []int) error {
	if err := n.checkBounds(out, outAt); err != nil {
		return n.fail(err)
	}
	if err := n.checkBounds(in, inAt); err != nil {
		return n.fail(err)
	}
	if err := n.enter(w, stamp, uint64(longestBlock(inAt)), nil); err != nil {
		return err
	}
	longest := uint64(0) // of all ranks: they go through the same rounds
	for r := range n.ranks {
		longest = max(longest, n.ranks[r].ref)
	}
	if longest > maxSegment {
		return n.fail(fmt.Errorf("%w: a block of %d bytes for one rank", ErrCorrupt, longest))
	}
	size := chunkSize / len(n.ranks) / line * line
	return n.stream(w, roundsOf(int(longest), size), func(round int) {
		for i := range n.ranks {
			piece := window(block(in, inAt, i), round, size)
			copy(n.stage(n.rank, round, i*size, i*size+len(piece)), piece)
		}
	}, func(round int) {
		for i := range n.ranks {
			piece := window(block(out, outAt, i), round, size)
			copy(piece, n.stage(i, round, n.rank*size, n.rank*size+len(piece)))
		}
	})
}
