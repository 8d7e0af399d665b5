package shm

import (
	"math/bits"

	"ddpbatch/mpi/internal/element"
)

// foldBlock is how many bytes of all ranks are combined at a time, so that what is between the levels of the
// tree, and what is written more than once, stays in the L1 cache.
const foldBlock = 8 << 10

// combine reduces n.sources, one for each rank, in the canonical order, into all of n.targets. All have the
// same length. A target may be exactly one of the sources, and overlaps no other.
func (n *Node) combine(r *Reduction) {
	if len(n.ranks) == 2 && len(n.targets) == 1 {
		r.Kernel(n.targets[0], n.sources[0], n.sources[1])
		return
	}
	if len(n.ranks) == 2 && len(n.targets) == 2 && r.Kernel2 != nil {
		r.Kernel2(n.targets[0], n.targets[1], n.sources[0], n.sources[1])
		return
	}
	length := len(n.targets[0])
	for from := 0; from < length; from += foldBlock {
		n.combineBlock(r.Kernel, from, min(from+foldBlock, length))
	}
}

// combineBlock is combine for bytes from to to. Only the last step of the tree writes to a target, when
// the sources have been read.
func (n *Node) combineBlock(k element.Kernel, from, to int) {
	dst := n.targets[0][from:to]
	if size := len(n.sources); size == 1 {
		copy(dst, n.sources[0][from:to])
	} else {
		mid := lowerHalf(size)
		a := n.subtree(k, 0, mid, 0, from, to)
		b := n.subtree(k, mid, size, 1, from, to)
		k(dst, a, b)
	}
	for _, also := range n.targets[1:] {
		copy(also[from:to], dst)
	}
}

// subtree combines the sources of ranks lo to hi, and returns where the result is: in the scratch
// of level, or the source itself if there is one only. It uses the levels from there on.
func (n *Node) subtree(k element.Kernel, lo, hi, level, from, to int) []byte {
	if hi-lo == 1 {
		return n.sources[lo][from:to]
	}
	mid := lo + lowerHalf(hi-lo)
	a := n.subtree(k, lo, mid, level, from, to)
	b := n.subtree(k, mid, hi, level+1, from, to)
	dst := n.scratch[level][:to-from]
	k(dst, a, b)
	return dst
}

// lowerHalf is how many of size ranks are on the left of the tree's root: the largest power of 2 below size.
func lowerHalf(size int) int { return 1 << (bits.Len(uint(size-1)) - 1) }
