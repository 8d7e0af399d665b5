package algorithm

// allGatherDirect sends the own block to every other rank, all at once: one round, and the most messages.
func allGatherDirect(p Port, buf []byte, at []int) error {
	rank, size := p.Rank(), p.Size()
	posted := p.Tickets(2 * size)[:0]
	for i := 1; i < size; i++ {
		from := (rank - i + size) % size
		posted = append(posted, p.Recv(from, buf[at[from]:at[from+1]]))
	}
	for i := 1; i < size; i++ {
		posted = append(posted, p.Send((rank+i)%size, buf[at[rank]:at[rank+1]]))
	}
	return WaitAll(p, posted...)
}

// costAllGatherDirect is (p-1)/p n beta, and alpha for p-1 messages posted at once.
func costAllGatherDirect(m Machine, size, n int) float64 { return m.all(size, n) }
