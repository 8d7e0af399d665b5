package algorithm

import "math/bits"

// reduceScatterHalving is recursive halving for powers of two, nearest neighbours first for the
// canonical order: after round k a rank has the blocks whose numbers end with the same k bits as its own.
// They lie side by side in a copy of the buffer whose blocks are ordered by their bit-reversed numbers.
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
	// length of the blocks from the i'th on
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
		if err := halve(p, theirs, keep, me^m, me&m != 0, r, scratch); err != nil {
			return err
		}
		buf = keep
	}
	copy(out, buf)
	return nil
}

// costReduceScatterHalving is L alpha + ((p-1)/p) n (beta + gamma), overlapped.
func costReduceScatterHalving(m Machine, size, n int) float64 {
	t := m.copied(size, float64(n))
	for ; size > 1; size, n = size/2, n/2 {
		t += m.Alpha + m.reduced(m.Beta, n/2)
	}
	return t
}
