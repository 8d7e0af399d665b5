package algorithm

// allToAllPairwise sends to one rank at a time, and hears from one: in round i to the i'th after, and from the
// i'th before. No rank gets more than one long message at a time (Thakur, Rabenseifner and Gropp 2005, section 4.3).
func allToAllPairwise(p Port, out []byte, outAt []int, in []byte, inAt []int) error {
	rank, size := p.Rank(), p.Size()
	copy(out[outAt[rank]:outAt[rank+1]], in[inAt[rank]:inAt[rank+1]])
	for i := 1; i < size; i++ {
		to, from := (rank+i)%size, (rank-i+size)%size
		err := WaitAll(p, p.Recv(from, out[outAt[from]:outAt[from+1]]), p.Send(to, in[inAt[to]:inAt[to+1]]))
		if err != nil {
			return err
		}
	}
	return nil
}

// costAllToAllPairwise is (p-1) alpha + (p-1)/p n beta.
func costAllToAllPairwise(m Machine, size, n int) float64 {
	return float64(size-1)*m.Alpha + others(size, n)*m.Beta
}
