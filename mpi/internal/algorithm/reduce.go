package algorithm

// ReduceFunc leaves the result in root's buf. The bufs of other ranks do not change.
type ReduceFunc func(p Port, buf []byte, root int, r Reduction) error

// Reduces are the algorithms of the reduction to one rank.
func Reduces() []Entry[ReduceFunc] {
	return []Entry[ReduceFunc]{
		{Traits{Code: 1, Name: "direct", Canonical: true, Cost: costReduceDirect}, reduceDirect},
		{Traits{Code: 2, Name: "binomial", Canonical: true, Cost: costReduceBinomial}, reduceBinomial},
		{Traits{Code: 3, Name: "scatter_gather", Canonical: true, Cost: costDirect}, reduceScattered},
	}
}

// reduceBinomial reduces along a binomial tree, in canonical order for every root.
func reduceBinomial(p Port, buf []byte, root int, r Reduction) error {
	if p.Size() == 1 {
		return nil
	}
	var room [maxLevels]child
	at := canonicalNode(p.Rank(), root, p.Size(), room[:])
	t := newTreeReduction(p, buf, r, at, r.segments(len(buf)), false)

	// Empty messages down the tree say that the parents have made the call.
	for _, child := range at.children {
		p.Notify(child.rank)
	}
	if at.parent != none {
		p.Expect(at.parent)
	}
	return runTrees(&t)
}

// costReduceBinomial is L(alpha + n beta + n gamma), with the reduction overlapped.
func costReduceBinomial(m Machine, size, n int) float64 {
	return float64(levels(size)) * (m.Alpha + m.reduced(m.Beta, n))
}

// reduceDirect sends all buffers to root, which combines them in canonical order.
func reduceDirect(p Port, buf []byte, root int, r Reduction) error {
	for rank := range p.Size() {
		switch { // messages to the other ranks say that root has made the call
		case rank == root:
		case p.Rank() == root:
			p.Notify(rank)
		case p.Rank() == rank:
			p.Expect(root)
		}
	}
	return runStar(p, buf, r, root, false)
}

// costReduceDirect is alpha + (p-1) n (beta + gamma), overlapped.
func costReduceDirect(m Machine, size, n int) float64 { return m.ofAll(m.Beta, size, n) }

// ofAll returns the time to receive n bytes, which take beta each, from each other rank, and to reduce them.
func (m Machine) ofAll(beta float64, size, n int) float64 {
	peers := size - 1
	return m.posted(peers) + m.overlapped(beta, float64(n*peers), float64(min(n, segmentBytes)*peers))
}
