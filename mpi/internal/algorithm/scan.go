package algorithm

// ScanFunc combines, in place, the bufs of ranks 0 to this one (Scan) or to the one before it (Exscan). In an Exscan, rank 0's buf does not
// change.
type ScanFunc func(p Port, buf []byte, r Reduction) error

// Scans are the algorithms of the inclusive scan. After a canonical one, rank i has the result of an all-reduce of ranks 0 to i alone.
func Scans() []Entry[ScanFunc] {
	return []Entry[ScanFunc]{
		{Traits{Code: 1, Name: "recursive_doubling", Canonical: true, Cost: costScanDoubling}, scanDoubling},
		{Traits{Code: 2, Name: "linear", Cost: costScanLinear}, scanLinear},
	}
}

// Exscans are the algorithms of the exclusive scan.
func Exscans() []Entry[ScanFunc] {
	return []Entry[ScanFunc]{
		{Traits{Code: 1, Name: "recursive_doubling", Canonical: true, Cost: costExscanDoubling}, exscanDoubling},
		{Traits{Code: 2, Name: "linear", Cost: costExscanLinear}, exscanLinear},
	}
}

// scanDoubling and exscanDoubling are recursive doubling (Kogge and Stone 1973, as in MPICH). At level k, blocks of 2^k ranks are paired as
// in an all-reduce, and the ranks of a right block combine the left block's sum, as the left operand, with their result. Rank i's result is
// combined in the canonical order of ranks 0 to i (or to i-1). So it has the bits of an all-reduce of these ranks alone.
func scanDoubling(p Port, buf []byte, r Reduction) error { return doublingScan(p, buf, r, true) }

func exscanDoubling(p Port, buf []byte, r Reduction) error { return doublingScan(p, buf, r, false) }

// doublingScan is Scan if the result starts with the rank's own elements, and Exscan otherwise.
func doublingScan(p Port, buf []byte, r Reduction, started bool) error {
	me, size := p.Rank(), p.Size()
	if size == 1 {
		return nil
	}
	steps := r.segments(len(buf))
	lag := min(window, steps)
	scratch := newSlots(p, r.widest(len(buf), steps), lag)
	total := buf // the sum of this rank's block
	if size > 2 {
		total = p.Scratch(len(buf))
		copy(total, buf)
	}
	var sent, received [window]Handle

	for m := 1; m < size; m *= 2 {
		left := me &^ (2*m - 1)
		peer, upper := me^m, me&m != 0
		if peer >= size {
			continue
		}
		more := left+2*m < size // the pair's sum is the left operand of another pair
		switch {                // otherwise the upper rank only sends a message that it has made the call
		case !more && upper:
			p.Notify(peer)
		case !more:
			p.Expect(peer)
		}
		post := func(k int) error {
			out := r.part(total, k, steps)
			if more || !upper {
				sent[k%lag] = p.Send(peer, out)
			}
			if more || upper {
				received[k%lag] = p.Recv(peer, scratch.at(k, len(out)))
			}
			return nil
		}
		finish := func(k int) error {
			if more || !upper {
				if err := p.Wait(sent[k%lag]); err != nil {
					return err
				}
			}
			if !more && !upper {
				return nil
			}
			if err := p.Wait(received[k%lag]); err != nil {
				return err
			}
			result, sum := r.part(buf, k, steps), r.part(total, k, steps)
			other := scratch.at(k, len(sum))
			if upper && started {
				r.Kernel(result, other, result)
			} else if upper {
				copy(result, other)
			}
			if more {
				r.combine(sum, other, sum, upper)
			}
			return nil
		}
		if err := pipeline(steps, phase{0, post}, phase{lag, finish}); err != nil {
			return err
		}
		started = started || upper
	}
	return nil
}

// costScanDoubling is L(alpha + n beta + 2 n gamma), overlapped, but the last level has only one reduction and one direction. If there are
// other levels, each rank begins with a copy of its buffer.
func costScanDoubling(m Machine, size, n int) float64 {
	t := 0.0
	if size > 2 {
		t = m.copied(float64(n))
	}
	for level := range levels(size) {
		step, beta := m, m.Beta
		if level < levels(size)-1 {
			step.Gamma *= 2
			beta = m.both()
		}
		t += step.Alpha + step.reduced(beta, n)
	}
	return t
}

// costExscanDoubling has a copy instead of one reduction: the first value that comes is the result so far.
func costExscanDoubling(m Machine, size, n int) float64 {
	if size <= 2 {
		return m.Alpha + float64(n)*m.Beta + m.copied(float64(n))
	}
	return costScanDoubling(m, size, n)
}

// scanLinear and exscanLinear pass the sum of the ranks before from rank to rank, segment by segment. The order is from left to right,
// ((x0 op x1) op x2) op x3. It is not the canonical one.
func scanLinear(p Port, buf []byte, r Reduction) error { return linearScan(p, buf, r, true) }

func exscanLinear(p Port, buf []byte, r Reduction) error { return linearScan(p, buf, r, false) }

// linearScan leaves the sum including the rank's own elements in buf if inclusive is set, and otherwise the sum of the ranks before.
func linearScan(p Port, buf []byte, r Reduction, inclusive bool) error {
	me, last := p.Rank(), p.Size()-1
	steps := r.segments(len(buf))
	lag := min(window, steps)
	scratch := newSlots(p, r.widest(len(buf), steps), 2*lag)
	var sent, received [window]Handle
	if me > 0 {
		p.Notify(me - 1)
	}
	if me < last {
		p.Expect(me + 1)
	}

	post := func(k int) error {
		if me > 0 {
			received[k%lag] = p.Recv(me-1, scratch.at(k%lag, len(r.part(buf, k, steps))))
		}
		return nil
	}
	add := func(k int) error {
		own := r.part(buf, k, steps)
		sum := own
		if me > 0 {
			if err := p.Wait(received[k%lag]); err != nil {
				return err
			}
			before := scratch.at(k%lag, len(own))
			if !inclusive {
				sum = scratch.at(lag+k%lag, len(own))
			}
			if inclusive || me < last {
				r.Kernel(sum, before, own)
			}
			if !inclusive {
				copy(own, before)
			}
		}
		if me < last {
			sent[k%lag] = p.Send(me+1, sum)
		}
		return nil
	}
	release := func(k int) error {
		if me == last {
			return nil
		}
		return p.Wait(sent[k%lag])
	}
	return pipeline(steps, phase{0, post}, phase{lag, add}, phase{2 * lag, release})
}

// costScanLinear is (p-2+m)(alpha + s beta + s gamma) for m segments of s bytes, with the reduction overlapped.
func costScanLinear(m Machine, size, n int) float64 {
	s, beta := float64(min(n, segmentBytes)), m.Beta
	if size > 2 { // ranks between the ends send and receive at the same time
		beta = m.both()
	}
	return float64(size-1)*(m.Alpha+s*(m.Beta+m.Gamma)) + m.overlapped(beta, float64(n)-s, 0)
}

// costExscanLinear has no reduction on the last rank, and so none at all with two ranks.
func costExscanLinear(m Machine, size, n int) float64 {
	if size <= 2 {
		m.Gamma = 0
	}
	return costScanLinear(m, size, n)
}
