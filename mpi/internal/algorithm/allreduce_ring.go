package algorithm

// allReduceRing is the ring (Patarasuk and Yuan 2009): p-1 steps in which every rank passes a block of n/p
// bytes on to its right neighbour and adds what comes from the left to its own, and p-1 in
// which the sums go round. Each block is summed in another order, none of them canonical.
func allReduceRing(p Port, buf []byte, r Reduction) error { return ringOf(p, buf, r, 1) }

// allReduceSegmentedRing is the ring with blocks cut into segments, of which one
// is reduced while others are on the way.
func allReduceSegmentedRing(p Port, buf []byte, r Reduction) error {
	return ringOf(p, buf, r, ringSegments(len(buf), p.Size(), r))
}

// ringSegments is how many segments a block has: without a second one, nothing would overlap.
func ringSegments(length, size int, r Reduction) int {
	return max(2, r.segments(r.widest(length, size)))
}

// ringOf is the ring with blocks cut in segments.
func ringOf(p Port, buf []byte, r Reduction, segments int) error {
	me, size := p.Rank(), p.Size()
	if size == 1 {
		return nil
	}
	left, right := (me+size-1)%size, (me+1)%size
	// A segment that comes in one step is passed on in the next: no more than one block may be under way.
	lag := min(window, segments)
	scratch := newSlots(p, r.widest(r.widest(len(buf), size), segments), lag)
	var sent, received [window]Ticket

	// In step s, block me-s goes out and block me-s-1 comes in; from step p-1 on, it is finished.
	segment := func(k, back int) []byte {
		s := k/segments + back
		return r.part(r.part(buf, (me+2*size-s)%size, size), k%segments, segments)
	}
	reducing := func(k int) bool { return k/segments < size-1 }
	post := func(k int) error {
		in := segment(k, 1)
		if reducing(k) {
			in = scratch.at(k, len(in))
		}
		received[k%lag] = p.Recv(left, in)
		sent[k%lag] = p.Send(right, segment(k, 0))
		return nil
	}
	finish := func(k int) error {
		if err := WaitAll(p, received[k%lag], sent[k%lag]); err != nil {
			return err
		}
		if own := segment(k, 1); reducing(k) {
			r.Kernel(own, scratch.at(k, len(own)), own)
		}
		return nil
	}
	return pipeline(2*(size-1)*segments, stage{0, post}, stage{lag, finish})
}

// costRing is 2(p-1) alpha + 2((p-1)/p) n beta + ((p-1)/p) n gamma.
func costRing(m Machine, size, n int) float64 {
	block := float64(n) / float64(size)
	return float64(size-1) * (2*m.Alpha + block*(2*m.Beta+m.Gamma))
}

// costSegmentedRing has the longer of beta and gamma alone for all but one segment of each block.
func costSegmentedRing(m Machine, size, n int) float64 {
	block := float64(n) / float64(size)
	segment := min(block/2, segmentBytes)
	return float64(size-1) * (2*m.Alpha + block*(m.Beta+max(m.Beta, m.Gamma)) + segment*min(m.Beta, m.Gamma))
}
