package algorithm

// allReduceHalving is recursive halving and doubling (Rabenseifner 2004), for powers of two: L
// rounds in which ranks exchange and reduce halves of what they have, and L in which they collect the results.
//
// Nearest neighbours go first, unlike in the paper: so what is combined in a round are blocks of
// neighbours, and the order is the canonical one.
func allReduceHalving(p Port, buf []byte, r Reduction) error {
	var route [maxLevels]turn
	n := 0
	for m := 1; m < p.Size(); m *= 2 {
		route[n] = turn{peer: p.Rank() ^ m, upper: p.Rank()&m != 0}
		n++
	}
	return halveAlong(p, buf, r, route[:n])
}

// turn is a round of halving: whom with, and which half this rank keeps.
type turn struct {
	peer  int
	upper bool
}

// halveAlong halves along the route and doubles on the way back.
func halveAlong(p Port, buf []byte, r Reduction, route []turn) error {
	if len(route) == 0 {
		return nil
	}
	var given [maxLevels][]byte
	scratch := halvingSlots(p, len(buf), r)
	keep := buf
	for i, t := range route {
		mine, theirs := r.part(keep, 0, 2), r.part(keep, 1, 2)
		if t.upper {
			mine, theirs = theirs, mine
		}
		keep, given[i] = mine, theirs
		work := halve
		if i == len(route)-1 {
			work = halveAndReturn
		}
		if err := work(p, theirs, mine, t.peer, t.peer < p.Rank(), r, scratch); err != nil {
			return err
		}
	}
	for i := len(route) - 2; i >= 0; i-- {
		// What was kept in round i+1 and what was given away are the two halves of what was kept in round i.
		keep = r.whole(buf, route[:i+1])
		out := p.Send(route[i].peer, keep)
		in := p.Recv(route[i].peer, given[i])
		if err := WaitAll(p, in, out); err != nil {
			return err
		}
	}
	return nil
}

// whole is what is kept of buf after the rounds of route.
func (r Reduction) whole(buf []byte, route []turn) []byte {
	for _, t := range route {
		half := 0
		if t.upper {
			half = 1
		}
		buf = r.part(buf, half, 2)
	}
	return buf
}

// costHalving is 2L alpha + 2((p-1)/p) n beta + ((p-1)/p) n gamma, the reduction overlapped.
func costHalving(m Machine, size, n int) float64 {
	var t float64
	for n, size = n/2, size/2; size > 0; n, size = n/2, size/2 {
		if size > 1 {
			t += 2*m.Alpha + m.reduced(m.Beta, n) + float64(n)*m.Beta
			continue
		}
		t += m.returned(1, n)
	}
	return t
}
