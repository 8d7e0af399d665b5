package algorithm

// scatterLinear sends every block straight from root, which hears from each rank that it is there.
func scatterLinear(p Port, out, in []byte, at []int, root int) error {
	rank, size := p.Rank(), p.Size()
	if rank != root {
		return WaitAll(p, p.Send(root, nil), p.Recv(root, out))
	}
	posted := p.Tickets(2 * size)[:0]
	for i := 1; i < size; i++ {
		to := (root + i) % size
		posted = append(posted, p.Recv(to, nil), p.Send(to, in[at[to]:at[to+1]]))
	}
	copy(out, in[at[root]:at[root+1]])
	return WaitAll(p, posted...)
}

// costScatterLinear is (p-1)/p n beta, and alpha for p-1 messages posted at once.
func costScatterLinear(m Machine, size, n int) float64 { return m.all(size, n) }
