package algorithm

// gatherBinomial collects the blocks up the binomial tree. All have the length of in.
// Each parent tells its children at once that it is there.
func gatherBinomial(p Port, out []byte, _ []int, in []byte, root int) error {
	b := binomialOf(p, root)
	t := newTray(p, b, len(in), out, in)
	posted := p.Tickets(2*b.children() + 2)[:0]
	for i := b.children() - 1; i >= 0; i-- { // the smallest subtree comes first
		posted = append(posted, p.Recv(b.child(i), t.blocks(b.subtree(i))))
	}
	for i := range b.children() {
		posted = append(posted, p.Send(b.child(i), nil))
	}
	if !b.leaf() {
		copy(t.own(), in)
	}
	if b.number == 0 {
		if err := WaitAll(p, posted...); err != nil {
			return err
		}
		t.unfold()
		return nil
	}
	posted = append(posted, p.Recv(b.parent(), nil))
	if err := WaitAll(p, posted[:b.children()]...); err != nil {
		return err
	}
	posted = append(posted, p.Send(b.parent(), t.mine()))
	return WaitAll(p, posted...)
}

// costGatherBinomial is L alpha + (p-1)/p n beta with L = ceil(log2 p).
func costGatherBinomial(m Machine, size, n int) float64 {
	return float64(levels(size))*m.Alpha + others(size, n)*m.Beta
}
