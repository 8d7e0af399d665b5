package algorithm

// allReduceGather is an all-gather of all ranks' buffers (Bruck et al. 1997), which each rank then
// combines itself, in canonical order. For tiny buffers: it needs p n bytes of memory.
//
// After round k a rank has the buffers of the 2^k ranks from itself on; in the last round, of all.
func allReduceGather(p Port, buf []byte, r Reduction) error {
	me, size, n := p.Rank(), p.Size(), len(buf)
	if size == 1 {
		return nil
	}
	all := p.Scratch(size * n) // rank me+i's at i
	copy(all, buf)
	for have := 1; have < size; have *= 2 {
		more := min(have, size-have)
		out := p.Send((me+size-have)%size, all[:more*n])
		in := p.Recv((me+have)%size, all[have*n:(have+more)*n])
		if err := WaitAll(p, in, out); err != nil {
			return err
		}
	}
	f := fold{reduction: r}
	f.begin(buf)
	for rank := range size {
		if i := (rank - me + size) % size; i == 0 {
			f.add(buf, true)
		} else {
			f.add(all[i*n:(i+1)*n], false)
		}
	}
	f.end()
	return nil
}

// costGather is L alpha + (p-1) n (beta + gamma).
func costGather(m Machine, size, n int) float64 {
	return float64(levels(size))*m.Alpha + float64((size-1)*n)*(m.Beta+m.Gamma)
}
