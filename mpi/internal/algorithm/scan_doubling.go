package algorithm

// scanDoubling and exscanDoubling are recursive doubling (Kogge and Stone 1973, as in MPICH). At level k, blocks of
// 2^k ranks are paired as in an all-reduce, and the ranks of a right block put the left block's sum in front of what
// they have. Rank i's result is combined in the canonical order of ranks 0 to i (or to i-1): it has the bits
// of an all-reduce of these ranks alone.
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
	total := p.Scratch(len(buf)) // of this rank's block
	copy(total, buf)
	var sent, received [window]Ticket

	for m := 1; m < size; m *= 2 {
		left := me &^ (2*m - 1)
		peer, upper := me^m, me&m != 0
		if peer >= size {
			continue
		}
		more := left+2*m < size // the pair's sum is the left one of another pair
		post := func(k int) error {
			out := r.part(total, k, steps)
			in := scratch.at(k, len(out))
			if !more && upper {
				out = nil // only tells that this rank has come
			} else if !more {
				in = nil
			}
			sent[k%lag] = p.Send(peer, out)
			received[k%lag] = p.Recv(peer, in)
			return nil
		}
		finish := func(k int) error {
			if err := WaitAll(p, received[k%lag], sent[k%lag]); err != nil {
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
		if err := pipeline(steps, stage{0, post}, stage{lag, finish}); err != nil {
			return err
		}
		started = started || upper
	}
	return nil
}

// costScanDoubling is L(alpha + n beta + 2 n gamma), overlapped, where the last level has one reduction only.
func costScanDoubling(m Machine, size, n int) float64 {
	var t float64
	for level := range levels(size) {
		step := m
		if level < levels(size)-1 {
			step.Gamma *= 2
		}
		t += step.Alpha + step.reduced(step.Beta, n)
	}
	return t
}

// costExscanDoubling has one reduction less: what comes first is the result so far.
func costExscanDoubling(m Machine, size, n int) float64 {
	if size <= 2 {
		m.Gamma = 0
	}
	return costScanDoubling(m, size, n)
}
