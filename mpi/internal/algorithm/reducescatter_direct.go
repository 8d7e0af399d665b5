package algorithm

// reduceScatterDirect sends each block straight to its owner, which combines them in canonical order, segment by segment.
func reduceScatterDirect(p Port, out, in []byte, at []int, r Reduction) error {
	me, size := p.Rank(), p.Size()
	if size == 1 {
		copy(out, in)
		return nil
	}
	block := func(i int) []byte { return in[at[i]:at[i+1]] }
	own := r.segments(len(block(me)))
	steps := 0
	for i := range size {
		steps = max(steps, r.segments(len(block(i))))
	}
	lag := min(window, steps)
	scratch := newSlots(p, r.widest(len(block(me)), own), lag*size)
	sent, received := p.Tickets(lag*size), p.Tickets(lag*size)
	index := func(k, rank int) int { return k%lag*size + rank }
	has := func(rank, k int) bool { return k < r.segments(len(block(rank))) }

	post := func(k int) error {
		for i := 1; i < size; i++ {
			rank := (me + i) % size
			if has(rank, k) {
				sent[index(k, rank)] = p.Send(rank, r.part(block(rank), k, r.segments(len(block(rank)))))
			}
			if has(me, k) {
				received[index(k, rank)] = p.Recv(rank, scratch.at(index(k, rank), len(r.part(out, k, own))))
			}
		}
		return nil
	}
	f := fold{reduction: r}
	reduce := func(k int) error {
		if !has(me, k) {
			return nil
		}
		f.begin(r.part(out, k, own))
		for rank := range size {
			if rank == me {
				f.add(r.part(block(me), k, own), true)
				continue
			}
			if err := p.Wait(received[index(k, rank)]); err != nil {
				return err
			}
			f.add(scratch.at(index(k, rank), len(r.part(out, k, own))), false)
		}
		f.end()
		return nil
	}
	finish := func(k int) error {
		if err := reduce(k); err != nil {
			return err
		}
		for rank := range size {
			if rank == me || !has(rank, k) {
				continue
			}
			if err := p.Wait(sent[index(k, rank)]); err != nil {
				return err
			}
		}
		return nil
	}
	return pipeline(steps, stage{0, post}, stage{lag, finish})
}

// costReduceScatterDirect is (p-1) alpha + ((p-1)/p) n (beta + gamma), overlapped.
func costReduceScatterDirect(m Machine, size, n int) float64 {
	return costReduceDirect(m, size, n/size)
}
