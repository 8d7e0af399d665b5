package algorithm

// AllReduceFunc combines the bufs of all ranks, in place, on every rank.
type AllReduceFunc func(p Port, buf []byte, r Reduction) error

// AllReduces are the algorithms of the all-reduce.
func AllReduces() []Entry[AllReduceFunc] {
	return []Entry[AllReduceFunc]{
		{Traits{Code: 1, Name: "star", Canonical: true, Cost: costStar}, allReduceStar},
		{Traits{Code: 2, Name: "ring", Cost: costRing}, allReduceRing},
		{Traits{Code: 3, Name: "segmented_ring", Cost: costSegmentedRing}, allReduceSegmentedRing},
		{Traits{Code: 4, Name: "recursive_doubling", Canonical: true, Cost: costDoubling}, allReduceDoubling},
		{Traits{Code: 5, Name: "halving_doubling", Canonical: true, Fits: powerOfTwo, Cost: costHalving}, allReduceHalving},
		{Traits{Code: 6, Name: "binomial", Canonical: true, Cost: costBinomial}, allReduceBinomial},
		{Traits{Code: 7, Name: "double_tree", Cost: costDoubleTree}, allReduceDoubleTree},
		{Traits{Code: 8, Name: "direct", Canonical: true, Cost: costDirect}, allReduceDirect},
		{Traits{Code: 9, Name: "gather_reduce", Canonical: true, Cost: costGather}, allReduceGather},
		{Traits{Code: 10, Name: "swing", Fits: powerOfTwo, Cost: costHalving}, allReduceSwing},
	}
}

// allReduceRing is the ring (Patarasuk and Yuan 2009). In the first p-1 steps, every rank passes a block of n/p bytes on to its right
// neighbor, and adds the block that comes from the left to its own. In the next p-1 steps, the sums go round. Each block is summed in
// another order, and none of them is canonical.
func allReduceRing(p Port, buf []byte, r Reduction) error { return ringOf(p, buf, r, 1) }

// allReduceSegmentedRing is the ring with blocks in segments: one segment is reduced while others are on the way.
func allReduceSegmentedRing(p Port, buf []byte, r Reduction) error {
	return ringOf(p, buf, r, ringSegments(len(buf), p.Size(), r))
}

// ringSegments returns the number of segments of a block. There are at least two, because otherwise nothing overlaps.
func ringSegments(length, size int, r Reduction) int {
	return max(2, r.segments(r.widest(length, size)))
}

// ringOf is the ring with blocks in segments.
func ringOf(p Port, buf []byte, r Reduction, segments int) error {
	me, size := p.Rank(), p.Size()
	if size == 1 {
		return nil
	}
	left, right := (me+size-1)%size, (me+1)%size
	// A segment that comes in one step is passed on in the next, so at most one block may be under way.
	lag := min(window, segments)
	scratch := newSlots(p, r.widest(r.widest(len(buf), size), segments), lag)
	var sent, received [window]Handle

	// In step s, block me-s is sent and block me-s-1 is received. From step p-1 on, the blocks are final.
	segment := func(k, ahead int) []byte {
		s := k/segments + ahead
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
	return pipeline(2*(size-1)*segments, phase{0, post}, phase{lag, finish})
}

// costRing is 2(p-1) alpha + 2((p-1)/p) n beta + ((p-1)/p) n gamma.
func costRing(m Machine, size, n int) float64 {
	block := float64(n) / float64(size)
	return float64(size-1) * (2*m.Alpha + block*(2*m.both()+m.Gamma))
}

// costSegmentedRing counts only the larger of beta and gamma for all but one segment of each block.
func costSegmentedRing(m Machine, size, n int) float64 {
	block := float64(n) / float64(size)
	segment := min(block/2, segmentBytes)
	return float64(size-1) * (2*m.Alpha + block*m.both() + m.overlapped(m.both(), block, segment))
}

// allReduceDoubling is recursive doubling, in canonical order for any size. It differs from Thakur, Rabenseifner and Gropp 2005 in sizes
// that are not powers of two.
//
// At level k, blocks of m = 2^k ranks are paired, and every rank has its block's sum. The right block of a pair may be short, with s < m
// ranks. Then its rank j receives the sum of the left block from that block's rank j, and sends its own to all ranks of the left block
// whose numbers are j modulo s. A last block without a partner moves up.
func allReduceDoubling(p Port, buf []byte, r Reduction) error {
	me, size := p.Rank(), p.Size()
	x := newExchanger(p, buf, r)
	for m := 1; m < size; m *= 2 {
		left := me &^ (2*m - 1)
		right := left + m
		if right >= size {
			continue
		}
		short := min(m, size-right)
		e := exchange{from: left + me - right, lower: true, to: left + me - right, stride: short, end: right}
		if me < right {
			i := me - left
			e = exchange{from: right + i%short, to: right + i, stride: m, end: right + short}
		}
		if err := x.run(e); err != nil {
			return err
		}
	}
	return nil
}

// costDoubling is L(alpha + n beta + n gamma) with L = ceil(log2 p), and more if a short block sends to a long one.
func costDoubling(m Machine, size, n int) float64 {
	var t float64
	for half := 1; half < size; half *= 2 {
		short := size % (2 * half)
		fan := 1
		if short > half {
			fan = (half + short - half - 1) / (short - half)
		}
		t += m.posted(fan) + m.reduced(float64(fan)*m.both(), n)
	}
	return t
}

// exchanger combines a whole buffer with that of another rank, in place, several times.
type exchanger struct {
	Port
	r          Reduction
	buf        []byte
	steps, lag int
	slots      slots
	sent       []Handle // room for one send to each rank, for each step under way
}

// exchange is one such exchange. The buffer is combined with that of rank from, which has the value of lower or of higher ranks. It is sent
// to the ranks to, to+stride and so on below end.
type exchange struct {
	from            int
	lower           bool
	to, stride, end int
}

func newExchanger(p Port, buf []byte, r Reduction) exchanger {
	steps := r.segments(len(buf))
	lag := min(window, steps)
	return exchanger{Port: p, r: r, buf: buf, steps: steps, lag: lag,
		slots: newSlots(p, r.widest(len(buf), steps), lag), sent: p.Handles(lag * p.Size())}
}

// run does one exchange, segment by segment.
func (x *exchanger) run(e exchange) error {
	var received [window]Handle
	post := func(k int) error {
		segment := x.r.part(x.buf, k, x.steps)
		received[k%x.lag] = x.Recv(e.from, x.slots.at(k, len(segment)))
		for i, to := k%x.lag*x.Size(), e.to; to < e.end; i, to = i+1, to+e.stride {
			x.sent[i] = x.Send(to, segment)
		}
		return nil
	}
	finish := func(k int) error {
		if err := x.Wait(received[k%x.lag]); err != nil {
			return err
		}
		for i, to := k%x.lag*x.Size(), e.to; to < e.end; i, to = i+1, to+e.stride {
			if err := x.Wait(x.sent[i]); err != nil {
				return err
			}
		}
		segment := x.r.part(x.buf, k, x.steps)
		x.r.combine(segment, x.slots.at(k, len(segment)), segment, e.lower)
		return nil
	}
	if x.steps == 1 { // short messages, for which the calls of pipeline would take too long
		if err := post(0); err != nil {
			return err
		}
		return finish(0)
	}
	return pipeline(x.steps, phase{0, post}, phase{x.lag, finish})
}

// allReduceHalving is recursive halving and doubling (Rabenseifner 2004), for powers of two. In the first L rounds, ranks exchange and
// reduce halves of what they have. In the next L rounds, they collect the results.
//
// Unlike in the paper, the nearest neighbors come first. So each round combines blocks of neighbors, and the order is the canonical one.
func allReduceHalving(p Port, buf []byte, r Reduction) error {
	var route [maxLevels]halvingRound
	n := 0
	for m := 1; m < p.Size(); m *= 2 {
		route[n] = halvingRound{peer: p.Rank() ^ m, upper: p.Rank()&m != 0}
		n++
	}
	return halveAlong(p, buf, r, route[:n])
}

// costHalving is 2L alpha + 2((p-1)/p) n beta + ((p-1)/p) n gamma, with the reduction overlapped.
func costHalving(m Machine, size, n int) float64 {
	var t float64
	for n, size = n/2, size/2; size > 0; n, size = n/2, size/2 {
		if size > 1 {
			t += 2*m.Alpha + m.reduced(m.both(), n) + float64(n)*m.both()
			continue
		}
		t += m.returned(1, n)
	}
	return t
}

// allReduceSwing is the bandwidth-optimal variant of Swing (De Sensi et al., NSDI 2024), for powers of two. It is halving and doubling in
// which the peer of round s is |1-(-2)^(s+1)|/3 ranks away, alternately on the two sides. That keeps the ways of messages shorter on a
// torus. Its order is not canonical.
//
// The paper sends sets of blocks; here every round halves one contiguous range. Ranks that can still reach each other in later rounds keep
// the same half. They keep the lower half if they include the lowest rank of both sides.
func allReduceSwing(p Port, buf []byte, r Reduction) error {
	var route [maxLevels]halvingRound
	rounds := levels(p.Size())
	for s := range rounds {
		peer := swingPeer(p.Rank(), s, p.Size())
		route[s] = halvingRound{peer: peer, upper: swingLowest(p.Rank(), s+1, p.Size()) > swingLowest(peer, s+1, p.Size())}
	}
	return halveAlong(p, buf, r, route[:rounds])
}

// swingPeer returns the peer of rank in round s.
func swingPeer(rank, s, size int) int {
	distance, power := 0, 1
	for range s + 1 { // 1 - 2 + 4 - ..., which is (1-(-2)^(s+1))/3
		distance += power
		power *= -2
	}
	if rank%2 == 1 {
		distance = -distance
	}
	return (rank + distance) & (size - 1)
}

// swingLowest returns the lowest rank that exchanges data with rank, directly or through others, in the rounds from s on. These are the
// ranks at multiples of 2^(s+1) from it, because distances of later rounds differ by such multiples, and those at multiples from its peer
// of round s.
func swingLowest(rank, s, size int) int {
	if s >= levels(size) {
		return rank
	}
	span := 2 << s
	return min(rank%span, swingPeer(rank, s, size)%span)
}

// allReduceGather is an all-gather of all ranks' buffers (Bruck et al. 1997). Each rank then combines them itself, in canonical order. It
// is for tiny buffers, as it needs p n bytes of memory.
//
// After round k, a rank has the buffers of the 2^k ranks beginning with itself. After the last round it has all.
func allReduceGather(p Port, buf []byte, r Reduction) error {
	me, size, n := p.Rank(), p.Size(), len(buf)
	if size == 1 {
		return nil
	}
	all := p.Scratch(size * n) // the buffer of rank me+i is at index i
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

// costGather is L alpha + (p-1) n (beta + gamma), and gamma for the rank's own bytes, which are copied.
func costGather(m Machine, size, n int) float64 {
	return float64(levels(size))*m.Alpha + float64((size-1)*n)*(m.both()+m.Gamma) + m.copied(float64(n))
}

// allReduceStar is the parameter server: rank 0 receives every rank's buffer, combines them in canonical order, and sends the result back.
// All traffic goes through one rank. It is here for comparison.
func allReduceStar(p Port, buf []byte, r Reduction) error { return runStar(p, buf, r, 0, true) }

// costStar is 2(p-1) alpha + 2(p-1) n beta + (p-1) n gamma. With many segments, the reduction and both directions overlap.
func costStar(m Machine, size, n int) float64 {
	return 2*m.posted(size-1) + float64(size-1)*m.roundTrip(n)
}

// allReduceDirect is a direct reduce-scatter and all-gather: every rank owns a part of the buffer, and all messages go directly to the
// owners and back. Its bandwidth is that of the ring, for any size, and its order is the canonical one.
func allReduceDirect(p Port, buf []byte, r Reduction) error {
	return reduceScattered(p, buf, everyone, r)
}

// costDirect is 2(p-1) alpha + 2((p-1)/p) n beta + ((p-1)/p) n gamma. Most of the latencies overlap with each other, and the reduction
// overlaps with the transfer.
func costDirect(m Machine, size, n int) float64 {
	return m.returned(size-1, n/size)
}

// allReduceBinomial reduces along a binomial tree to rank 0, in canonical order, and broadcasts along the same tree.
func allReduceBinomial(p Port, buf []byte, r Reduction) error {
	if p.Size() == 1 {
		return nil
	}
	var room [maxLevels]child
	t := newTreeReduction(p, buf, r, canonicalNode(p.Rank(), 0, p.Size(), room[:]), r.segments(len(buf)), true)
	return runTrees(&t)
}

// costBinomial is 2L alpha + 2L n beta + L n gamma. With many segments, both directions overlap, and rank 0's L children limit them.
func costBinomial(m Machine, size, n int) float64 {
	return float64(levels(size)) * (2*m.Alpha + m.roundTrip(n))
}

// allReduceDoubleTree sends half of the buffer along one binary tree and half along another, up to their roots and down again. The trees
// are those of the double tree broadcast from rank 0 (Sanders, Speck and Traff 2009), in which a rank with children in one is a leaf in the
// other. The order is not canonical.
func allReduceDoubleTree(p Port, buf []byte, r Reduction) error {
	me, size := p.Rank(), p.Size()
	if size == 1 {
		return nil
	}
	var rooms [2][maxLevels]child
	first := balancedNode(me, size, rooms[0][:])
	second := balancedNode(twin(me, size), size, rooms[1][:])
	if me > 0 {
		second.parent = untwin(second.parent, size)
	}
	for i := range second.children {
		rank := untwin(second.children[i].rank, size)
		second.children[i] = child{rank: rank, lower: rank < me}
	}
	steps := r.segments(r.widest(len(buf), 2))
	a := newTreeReduction(p, r.part(buf, 0, 2), r, first, steps, true)
	b := newTreeReduction(p, r.part(buf, 1, 2), r, second, steps, true)
	if len(second.children) == 0 && len(first.children) > 0 {
		return runTrees(&b, &a)
	}
	return runTrees(&a, &b)
}

// costDoubleTree is 2L alpha + 2 n beta for many segments: a rank receives the halves of both children and those of the results, and sends
// as much. With few segments, each level waits for its segments.
func costDoubleTree(m Machine, size, n int) float64 {
	first := float64(min(n/2, segmentBytes))
	rest := float64(n/2) - first
	children := float64(min(2, size-1))
	up, down := children*(m.Beta+m.Gamma), children*m.Beta
	m.Gamma *= children
	return float64(levels(size))*(2*m.Alpha+first*(up+down)) + m.overlapped(2*children*m.both(), rest, 0)
}
