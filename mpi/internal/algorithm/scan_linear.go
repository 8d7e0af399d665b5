package algorithm

// scanLinear and exscanLinear pass the sum of the ranks before on from rank to rank, segment by segment. The order is from left to
// right, ((x0 op x1) op x2) op x3, not the canonical one.
func scanLinear(p Port, buf []byte, r Reduction) error { return chain(p, buf, r, true) }

func exscanLinear(p Port, buf []byte, r Reduction) error { return chain(p, buf, r, false) }

// chain leaves the sum with a rank's own elements in buf if inclusive is set, and that of the ranks before otherwise.
func chain(p Port, buf []byte, r Reduction, inclusive bool) error {
	me, last := p.Rank(), p.Size()-1
	steps := r.segments(len(buf))
	lag := min(window, steps)
	scratch := newSlots(p, r.widest(len(buf), steps), 2*lag)
	var sent, received [window]Ticket
	var told, heard Ticket // of empty messages that tell that a rank has come
	if me > 0 {
		told = p.Send(me-1, nil)
	}
	if me < last {
		heard = p.Recv(me+1, nil)
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
	settle := func(k int) error {
		if me == last {
			return nil
		}
		return p.Wait(sent[k%lag])
	}
	err := pipeline(steps, stage{0, post}, stage{lag, add}, stage{2 * lag, settle})
	if err == nil && me > 0 {
		err = p.Wait(told)
	}
	if err == nil && me < last {
		err = p.Wait(heard)
	}
	return err
}

// costScanLinear is (p-2+m)(alpha + s beta + s gamma) for m segments of s bytes, the reduction overlapped.
func costScanLinear(m Machine, size, n int) float64 {
	if size == 1 {
		return 0
	}
	s := float64(min(n, segmentBytes))
	return float64(size-1)*(m.Alpha+s*(m.Beta+m.Gamma)) + (float64(n)-s)*max(m.Beta, m.Gamma)
}

// costExscanLinear has no reduction on the last rank.
func costExscanLinear(m Machine, size, n int) float64 {
	if size <= 2 {
		m.Gamma = 0
	}
	return costScanLinear(m, size, n)
}
