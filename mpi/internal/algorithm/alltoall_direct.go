package algorithm

// allToAllDirect posts all messages at once. Each rank begins with the one after it, so that not
// all turn to rank 0 first.
func allToAllDirect(p Port, out []byte, outAt []int, in []byte, inAt []int) error {
	rank, size := p.Rank(), p.Size()
	posted := p.Tickets(2 * size)[:0]
	for i := 1; i < size; i++ {
		from := (rank - i + size) % size
		posted = append(posted, p.Recv(from, out[outAt[from]:outAt[from+1]]))
	}
	for i := 1; i < size; i++ {
		to := (rank + i) % size
		posted = append(posted, p.Send(to, in[inAt[to]:inAt[to+1]]))
	}
	copy(out[outAt[rank]:outAt[rank+1]], in[inAt[rank]:inAt[rank+1]])
	return WaitAll(p, posted...)
}

// costAllToAllDirect is (p-1)/p n beta, and alpha for p-1 messages posted at once.
func costAllToAllDirect(m Machine, size, n int) float64 { return m.all(size, n) }
