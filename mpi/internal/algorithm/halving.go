package algorithm

// halvingRound is a round of halving: with which rank, and which half this rank keeps.
type halvingRound struct {
	peer  int
	upper bool
}

// halveAlong halves the buffer along the route, and doubles it on the way back.
func halveAlong(p Port, buf []byte, r Reduction, route []halvingRound) error {
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
		last := i == len(route)-1
		if err := halve(p, theirs, mine, t.peer, last, r, scratch); err != nil {
			return err
		}
	}
	for i := len(route) - 2; i >= 0; i-- {
		// What was kept and what was given away in round i+1 are the two halves of what was kept in round i.
		keep = r.whole(buf, route[:i+1])
		out := p.Send(route[i].peer, keep)
		in := p.Recv(route[i].peer, given[i])
		if err := WaitAll(p, in, out); err != nil {
			return err
		}
	}
	return nil
}

// whole returns what is kept of buf after the rounds of route.
func (r Reduction) whole(buf []byte, route []halvingRound) []byte {
	for _, t := range route {
		half := 0
		if t.upper {
			half = 1
		}
		buf = r.part(buf, half, 2)
	}
	return buf
}

// halve exchanges halves of a buffer with peer. It sends theirs, and combines what it receives with keep, in place. With returnHalves, it
// also exchanges the finished halves. That is an all-reduce of two ranks, or the two middle rounds of one of more ranks. Each segment is
// returned while others are still coming.
func halve(p Port, theirs, keep []byte, peer int, returnHalves bool, r Reduction, scratch slots) error {
	steps := r.segments(max(len(theirs), len(keep)))
	lag := min(window, steps)
	var sent, received, returned, fetched [window]Handle
	post := func(k int) error {
		sent[k%lag] = p.Send(peer, r.part(theirs, k, steps))
		received[k%lag] = p.Recv(peer, scratch.at(k, len(r.part(keep, k, steps))))
		return nil
	}
	reduce := func(k int) error {
		if err := p.Wait(sent[k%lag]); err != nil {
			return err
		}
		if returnHalves {
			fetched[k%lag] = p.Recv(peer, r.part(theirs, k, steps))
		}
		if err := p.Wait(received[k%lag]); err != nil {
			return err
		}
		segment := r.part(keep, k, steps)
		r.combine(segment, scratch.at(k, len(segment)), segment, peer < p.Rank())
		if returnHalves {
			returned[k%lag] = p.Send(peer, segment)
		}
		return nil
	}
	if !returnHalves {
		return pipeline(steps, phase{0, post}, phase{lag, reduce})
	}
	collect := func(k int) error { return WaitAll(p, fetched[k%lag], returned[k%lag]) }
	return pipeline(steps, phase{0, post}, phase{lag, reduce}, phase{2 * lag, collect})
}

// halvingSlots returns the scratch memory for halving a buffer of length bytes.
func halvingSlots(p Port, length int, r Reduction) slots {
	half := r.widest(length, 2)
	steps := r.segments(half)
	return newSlots(p, r.widest(half, steps), min(window, steps))
}
