package algorithm

// broadcastScatter scatters the buffer down the binomial tree, then gathers the parts on all ranks
// along a ring, in the order of the numbers from root (Barnett, van de Geijn et al. 1994).
func broadcastScatter(p Port, buf []byte, root int) error {
	b := binomialOf(p, root)
	start := func(i int) int { return i*(len(buf)/b.size) + min(i, len(buf)%b.size) }

	posted := p.Tickets(2*b.children() + 2)[:0]
	if b.number > 0 {
		posted = append(posted,
			p.Send(b.parent(), nil),
			p.Recv(b.parent(), buf[start(b.number):start(b.number+b.below())]))
		if err := p.Wait(posted[1]); err != nil {
			return err
		}
	}
	for i := range b.children() {
		from, to := b.subtree(i)
		posted = append(posted, p.Send(b.child(i), buf[start(from):start(to)]), p.Recv(b.child(i), nil))
	}
	if err := WaitAll(p, posted...); err != nil { // what is sent is received again
		return err
	}
	return circulate(p, ring{b.number, b.rank(b.number + 1), b.rank(b.number + b.size - 1)},
		func(i int) []byte { return buf[start(i):start(i+1)] })
}

// costBroadcastScatter is (L+p-1) alpha + 2 (p-1)/p n beta with L = ceil(log2 p).
func costBroadcastScatter(m Machine, size, n int) float64 {
	return float64(levels(size)+size-1)*m.Alpha + 2*others(size, n)*m.Beta
}
