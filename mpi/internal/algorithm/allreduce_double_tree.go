package algorithm

// allReduceDoubleTree moves half of the buffer along one binary tree and half along another, up to their
// roots and down again. The trees are those of the double tree broadcast from rank 0 (Sanders, Speck and
// Traff 2009), where a rank with children in one is a leaf in the other. The order is not canonical.
func allReduceDoubleTree(p Port, buf []byte, r Reduction) error {
	me, size := p.Rank(), p.Size()
	if size == 1 {
		return nil
	}
	var rooms [2][maxLevels]child
	first := balancedPlace(me, size, rooms[0][:])
	second := balancedPlace(twin(me, size), size, rooms[1][:])
	if me > 0 {
		second.parent = untwin(second.parent, size)
	}
	for i := range second.children {
		rank := untwin(second.children[i].rank, size)
		second.children[i] = child{rank: rank, lower: rank < me}
	}
	steps := r.segments(r.widest(len(buf), 2))
	a := newClimber(p, r.part(buf, 0, 2), r, first, steps, true)
	b := newClimber(p, r.part(buf, 1, 2), r, second, steps, true)
	if len(second.children) == 0 && len(first.children) > 0 {
		return run(&b, &a)
	}
	return run(&a, &b)
}

// costDoubleTree is 2L alpha + 2 n beta for many segments: a rank gets both children's halves, and those of the
// results, and as much for the ways out. With few, each level waits for its segments.
func costDoubleTree(m Machine, size, n int) float64 {
	first := float64(min(n/2, segmentBytes))
	rest := float64(n/2) - first
	children := float64(min(2, size-1))
	up, down := children*(m.Beta+m.Gamma), children*m.Beta
	return float64(levels(size))*(2*m.Alpha+first*(up+down)) + rest*max(2*children*m.Beta, children*m.Gamma)
}
