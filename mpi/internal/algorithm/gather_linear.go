package algorithm

// gatherLinear sends every block straight to root, which tells each rank that it is there.
func gatherLinear(p Port, out []byte, at []int, in []byte, root int) error {
	rank, size := p.Rank(), p.Size()
	if rank != root {
		return WaitAll(p, p.Send(root, in), p.Recv(root, nil))
	}
	posted := p.Tickets(2 * size)[:0]
	for i := 1; i < size; i++ {
		from := (root + i) % size
		posted = append(posted, p.Recv(from, out[at[from]:at[from+1]]))
	}
	for i := 1; i < size; i++ {
		posted = append(posted, p.Send((root+i)%size, nil))
	}
	copy(out[at[root]:at[root+1]], in)
	return WaitAll(p, posted...)
}

// costGatherLinear is (p-1)/p n beta, and alpha for p-1 messages posted at once.
func costGatherLinear(m Machine, size, n int) float64 { return m.all(size, n) }
