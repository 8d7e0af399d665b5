package algorithm

// reduceScatterRing passes sums round the ring: in step s, rank i sends what it has of block i-1-s
// and gets block i-2-s, to which it adds its own. The order is not canonical.
func reduceScatterRing(p Port, out, in []byte, at []int, r Reduction) error {
	me, size := p.Rank(), p.Size()
	if size == 1 {
		copy(out, in)
		return nil
	}
	block := func(back int) []byte {
		i := (me + 2*size - back) % size
		return in[at[i]:at[i+1]]
	}
	widest := 0
	for i := range size {
		widest = max(widest, at[i+1]-at[i])
	}
	scratch := newSlots(p, widest, 2)
	left, right := (me+size-1)%size, (me+1)%size
	sum := block(1)
	for s := range size - 1 {
		own := block(2 + s)
		next := scratch.at(s, len(own))
		received, sent := p.Recv(left, next), p.Send(right, sum)
		if err := WaitAll(p, received, sent); err != nil {
			return err
		}
		sum = next
		if s == size-2 {
			sum = out
		}
		r.Kernel(sum, next, own)
	}
	return nil
}

// costReduceScatterRing is (p-1) alpha + ((p-1)/p) n (beta + gamma).
func costReduceScatterRing(m Machine, size, n int) float64 {
	return float64(size-1) * (m.Alpha + float64(n)/float64(size)*(m.Beta+m.Gamma))
}
