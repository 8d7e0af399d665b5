package algorithm

import "math/bits"

// ReduceScatterFunc leaves block i of the result in the out of rank i. in does not change. out does not overlap it.
type ReduceScatterFunc func(p Port, out, in []byte, at []int, r Reduction) error

// ReduceScatters are the algorithms of the reduce-scatter. All take blocks of different lengths.
func ReduceScatters() []Entry[ReduceScatterFunc] {
	return []Entry[ReduceScatterFunc]{
		{Traits{Code: 1, Name: "direct", Canonical: true, Cost: costReduceScatterDirect}, reduceScatterDirect},
		{Traits{Code: 2, Name: "ring", Cost: costReduceScatterRing}, reduceScatterRing},
		{Traits{Code: 3, Name: "halving", Canonical: true, Fits: powerOfTwo, Cost: costReduceScatterHalving}, reduceScatterHalving},
	}
}

// reduceScatterDirect sends each block directly to its owner, which combines the blocks in canonical order, segment by segment.
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
	sent, received := p.Handles(lag*size), p.Handles(lag*size)
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
	return pipeline(steps, phase{0, post}, phase{lag, finish})
}

// costReduceScatterDirect is (p-1) alpha + ((p-1)/p) n (beta + gamma), overlapped.
func costReduceScatterDirect(m Machine, size, n int) float64 {
	return m.ofAll(m.both(), size, n/size)
}

// reduceScatterRing passes sums around the ring. In step s, rank i sends its sum of block i-1-s and receives that of block i-2-s, to which
// it adds its own block. The order is not canonical.
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
	return float64(size-1) * (m.Alpha + float64(n)/float64(size)*(m.both()+m.Gamma))
}

// reduceScatterHalving is recursive halving for powers of two. The nearest neighbors come first, for the canonical order: after round k, a
// rank has the blocks whose numbers end with the same k bits as its own. These are adjacent in a copy of the buffer in which the blocks are
// in the order of their bit-reversed numbers.
func reduceScatterHalving(p Port, out, in []byte, at []int, r Reduction) error {
	me, size := p.Rank(), p.Size()
	if size == 1 {
		copy(out, in)
		return nil
	}
	rounds := levels(size)
	number := func(i int) int { return int(bits.Reverse32(uint32(i)) >> (32 - rounds)) }
	buf := p.Scratch(len(in))
	start := 0
	for i := range size {
		b := number(i)
		start += copy(buf[start:], in[at[b]:at[b+1]])
	}
	// length returns the length of the n blocks from first on.
	length := func(first, n int) int {
		sum := 0
		for i := first; i < first+n; i++ {
			b := number(i)
			sum += at[b+1] - at[b]
		}
		return sum
	}
	scratch := newSlots(p, min(len(in), segmentBytes), window)
	first := 0 // of the n blocks in buf
	for n := size; n > 1; n /= 2 {
		m := size / n
		cut := length(first, n/2)
		keep, theirs := buf[:cut], buf[cut:]
		if me&m != 0 {
			keep, theirs = theirs, keep
			first += n / 2
		}
		if err := halve(p, theirs, keep, me^m, false, r, scratch); err != nil {
			return err
		}
		buf = keep
	}
	copy(out, buf)
	return nil
}

// costReduceScatterHalving is L alpha + ((p-1)/p) n (beta + gamma), overlapped.
func costReduceScatterHalving(m Machine, size, n int) float64 {
	t := m.copied(float64(n))
	for ; size > 1; size, n = size/2, n/2 {
		t += m.Alpha + m.reduced(m.both(), n/2)
	}
	return t
}
