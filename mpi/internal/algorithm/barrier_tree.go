package algorithm

// barrierBinomial gathers the news that all are there up the binomial tree of rank 0, and hands it down again. It
// takes twice as long as dissemination, with fewer messages in large groups: 3 (p-1) of them.
func barrierBinomial(p Port) error {
	b := binomialOf(p, 0)
	return meet(p, b.parent(), b.children(), b.child)
}

// costBarrierBinomial is 2 L alpha with L = ceil(log2 p).
func costBarrierBinomial(m Machine, size, _ int) float64 { return 2 * float64(levels(size)) * m.Alpha }

// barrierStar is the same with a tree of height 1: rank 0 hears from all, and tells all.
func barrierStar(p Port) error {
	if p.Rank() > 0 {
		return meet(p, 0, 0, nil)
	}
	return meet(p, none, p.Size()-1, func(i int) int { return i + 1 })
}

// costBarrierStar is that of p-1 messages posted at once, twice.
func costBarrierStar(m Machine, size, _ int) float64 {
	if size == 1 {
		return 0
	}
	return 2 * m.posted(size-1)
}

// meet returns when all ranks of a tree have called it. At once, each rank tells its children that it is there (see the
// rule at the tables); then it hears from them, and tells its parent, and then all go the other way.
func meet(p Port, parent, children int, child func(i int) int) error {
	posted := p.Tickets(3*children + 3)[:0]
	for i := range children {
		posted = append(posted, p.Recv(child(i), nil), p.Send(child(i), nil))
	}
	if err := WaitAll(p, posted...); err != nil {
		return err
	}
	if parent != none {
		there, told := p.Recv(parent, nil), p.Recv(parent, nil)
		posted = append(posted, there, told, p.Send(parent, nil))
		if err := WaitAll(p, there, told); err != nil {
			return err
		}
	}
	for i := range children {
		posted = append(posted, p.Send(child(i), nil))
	}
	return WaitAll(p, posted...)
}
