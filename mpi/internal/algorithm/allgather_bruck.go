package algorithm

// allGatherBruck doubles what every rank has in each round, for any size: rank r has its own block and those of the ranks
// after it, and gets as many more from the rank that begins where it ends (Bruck et al. 1997). The blocks are
// put together in that order in scratch memory, and turned about at the end.
func allGatherBruck(p Port, buf []byte, at []int) error {
	rank, size := p.Rank(), p.Size()
	turned := p.Scratch(len(buf))
	start := func(i int) int { // of the block of rank+i, for i from 0 to size
		if rank+i < size {
			return at[rank+i] - at[rank]
		}
		return len(buf) - at[rank] + at[rank+i-size]
	}
	copy(turned, buf[at[rank]:at[rank+1]])

	posted := p.Tickets(2 * levels(size))[:0]
	for n := 1; n < size; n *= 2 {
		more := min(n, size-n)
		received := p.Recv((rank+n)%size, turned[start(n):start(n+more)])
		posted = append(posted, received, p.Send((rank-n+size)%size, turned[:start(more)]))
		if err := p.Wait(received); err != nil {
			return err
		}
	}
	if err := WaitAll(p, posted...); err != nil {
		return err
	}
	own := start(1)
	before := at[rank]
	copy(buf[at[rank+1]:], turned[own:len(buf)-before])
	copy(buf[:before], turned[len(buf)-before:])
	return nil
}

// costAllGatherBruck is L alpha + (p-1)/p n beta with L = ceil(log2 p), and n gamma to turn the blocks about.
func costAllGatherBruck(m Machine, size, n int) float64 {
	return float64(levels(size))*m.Alpha + others(size, n)*m.Beta + m.copied(size, float64(n))
}
