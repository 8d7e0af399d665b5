package algorithm

// reduceBinomial reduces along a binomial tree, in canonical order for every root.
func reduceBinomial(p Port, buf []byte, root int, r Reduction) error {
	if p.Size() == 1 {
		return nil
	}
	var room [maxLevels]child
	at := canonicalPlace(p.Rank(), root, p.Size(), room[:])
	t := newClimber(p, buf, r, at, r.segments(len(buf)), false)

	// Empty messages down the tree tell that the parents have come.
	told := p.Tickets(len(at.children) + 1)[:0]
	for _, child := range at.children {
		told = append(told, p.Send(child.rank, nil))
	}
	if at.parent != none {
		told = append(told, p.Recv(at.parent, nil))
	}
	if err := run(&t); err != nil {
		return err
	}
	return WaitAll(p, told...)
}

// costReduceBinomial is L(alpha + n beta + n gamma), the reduction overlapped.
func costReduceBinomial(m Machine, size, n int) float64 {
	return float64(levels(size)) * (m.Alpha + m.reduced(m.Beta, n))
}
