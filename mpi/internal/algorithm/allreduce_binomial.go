package algorithm

// allReduceBinomial reduces along a binomial tree to rank 0, in canonical order, and broadcasts along the same tree.
func allReduceBinomial(p Port, buf []byte, r Reduction) error {
	if p.Size() == 1 {
		return nil
	}
	var room [maxLevels]child
	t := newClimber(p, buf, r, canonicalPlace(p.Rank(), 0, p.Size(), room[:]), r.segments(len(buf)), true)
	return run(&t)
}

// costBinomial is 2L alpha + 2L n beta + L n gamma. With many segments both ways overlap, and rank
// 0's L children are what limits them.
func costBinomial(m Machine, size, n int) float64 {
	first := float64(min(n, segmentBytes))
	return float64(levels(size)) * (2*m.Alpha + float64(n)*max(m.Beta, m.Gamma) + first*(m.Beta+min(m.Beta, m.Gamma)))
}
