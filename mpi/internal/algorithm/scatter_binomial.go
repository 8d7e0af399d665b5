package algorithm

// scatterBinomial hands the blocks down the binomial tree. All have the length of out.
// Each rank tells its parent at once that it is there.
func scatterBinomial(p Port, out, in []byte, _ []int, root int) error {
	b := binomialOf(p, root)
	t := newTray(p, b, len(out), in, out)
	posted := p.Tickets(2*b.children() + 2)[:0]
	if b.number == 0 {
		t.fold()
	} else {
		received := p.Recv(b.parent(), t.mine())
		posted = append(posted, p.Send(b.parent(), nil), received)
		if err := p.Wait(received); err != nil {
			return err
		}
	}
	for i := range b.children() {
		posted = append(posted, p.Send(b.child(i), t.blocks(b.subtree(i))), p.Recv(b.child(i), nil))
	}
	if !b.leaf() {
		copy(out, t.own())
	}
	return WaitAll(p, posted...)
}

// costScatterBinomial is L alpha + (p-1)/p n beta with L = ceil(log2 p).
func costScatterBinomial(m Machine, size, n int) float64 {
	return float64(levels(size))*m.Alpha + others(size, n)*m.Beta
}
