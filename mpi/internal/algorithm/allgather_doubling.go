package algorithm

// allGatherDoubling is recursive doubling: pairs of ranks exchange what they have, then pairs of pairs, and so
// on. Groups are powers of two (Thakur, Rabenseifner and Gropp 2005, section 4.1).
func allGatherDoubling(p Port, buf []byte, at []int) error {
	rank, size := p.Rank(), p.Size()
	posted := p.Tickets(2 * levels(size))[:0]
	team := func(rank, n int) []byte { // the blocks of the n ranks, a power of two, around rank
		first := rank &^ (n - 1)
		return buf[at[first]:at[first+n]]
	}
	for n := 1; n < size; n *= 2 {
		posted = append(posted, p.Recv(rank^n, team(rank^n, n)))
	}
	for k, n := 0, 1; n < size; k, n = k+1, n*2 {
		posted = append(posted, p.Send(rank^n, team(rank, n)))
		if err := p.Wait(posted[k]); err != nil {
			return err
		}
	}
	return WaitAll(p, posted...)
}

// costAllGatherDoubling is L alpha + (p-1)/p n beta with L = log2 p.
func costAllGatherDoubling(m Machine, size, n int) float64 {
	return float64(levels(size))*m.Alpha + others(size, n)*m.Beta
}
