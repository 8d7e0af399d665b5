package algorithm

// ReduceFunc leaves the result in root's buf. The others' bufs are not changed.
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

	// Empty messages down the tree tell that the parents have come.
	presence := p.Handles(len(at.children) + 1)[:0]
	for _, child := range at.children {
		presence = append(presence, p.Send(child.rank, nil))
	}
	if at.parent != none {
		presence = append(presence, p.Recv(at.parent, nil))
	}
	if err := runTrees(&t); err != nil {
		return err
	}
	return WaitAll(p, presence...)
}

// costReduceBinomial is L(alpha + n beta + n gamma), the reduction overlapped.
func costReduceBinomial(m Machine, size, n int) float64 {
	return float64(levels(size)) * (m.Alpha + m.reduced(m.Beta, n))
}

// reduceDirect sends everything to root, which combines it in canonical order.
func reduceDirect(p Port, buf []byte, root int, r Reduction) error {
	presence := p.Handles(p.Size())[:0] // of empty messages that tell that root has come
	for rank := range p.Size() {
		switch {
		case rank == root:
		case p.Rank() == root:
			presence = append(presence, p.Send(rank, nil))
		case p.Rank() == rank:
			presence = append(presence, p.Recv(root, nil))
		}
	}
	if err := runStar(p, buf, r, root, false); err != nil {
		return err
	}
	return WaitAll(p, presence...)
}

// costReduceDirect is alpha + (p-1) n (beta + gamma), overlapped.
func costReduceDirect(m Machine, size, n int) float64 {
	share := float64(min(n, segmentBytes) * (size - 1))
	return m.posted(size-1) + float64(n*(size-1))*max(m.Beta, m.Gamma) + share*min(m.Beta, m.Gamma)
}
