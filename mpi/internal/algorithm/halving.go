package algorithm

// halve exchanges halves of a buffer with peer: theirs goes there, and what comes is combined
// with keep, in place. lower tells whether the peer's is that of lower ranks.
func halve(p Port, theirs, keep []byte, peer int, lower bool, r Reduction, scratch slots) error {
	steps := r.segments(max(len(theirs), len(keep)))
	lag := min(window, steps)
	var sent, received [window]Ticket
	post := func(k int) error {
		sent[k%lag] = p.Send(peer, r.part(theirs, k, steps))
		received[k%lag] = p.Recv(peer, scratch.at(k%lag, len(r.part(keep, k, steps))))
		return nil
	}
	finish := func(k int) error {
		if err := WaitAll(p, received[k%lag], sent[k%lag]); err != nil {
			return err
		}
		segment := r.part(keep, k, steps)
		r.combine(segment, scratch.at(k%lag, len(segment)), segment, lower)
		return nil
	}
	return pipeline(steps, stage{0, post}, stage{lag, finish})
}

// halveAndReturn is halve, after which the finished halves are exchanged: an all-reduce of two
// ranks, or the two middle rounds of one of more. Each segment is returned while others are still coming.
func halveAndReturn(p Port, theirs, keep []byte, peer int, lower bool, r Reduction, scratch slots) error {
	steps := r.segments(max(len(theirs), len(keep)))
	lag := min(window, steps)
	var sent, received, returned, fetched [window]Ticket
	post := func(k int) error {
		sent[k%lag] = p.Send(peer, r.part(theirs, k, steps))
		received[k%lag] = p.Recv(peer, scratch.at(k%lag, len(r.part(keep, k, steps))))
		return nil
	}
	reduce := func(k int) error {
		if err := p.Wait(sent[k%lag]); err != nil {
			return err
		}
		fetched[k%lag] = p.Recv(peer, r.part(theirs, k, steps))
		if err := p.Wait(received[k%lag]); err != nil {
			return err
		}
		segment := r.part(keep, k, steps)
		r.combine(segment, scratch.at(k%lag, len(segment)), segment, lower)
		returned[k%lag] = p.Send(peer, segment)
		return nil
	}
	settle := func(k int) error { return WaitAll(p, fetched[k%lag], returned[k%lag]) }
	return pipeline(steps, stage{0, post}, stage{lag, reduce}, stage{2 * lag, settle})
}

// halvingSlots is the scratch memory that halving a buffer of length bytes needs.
func halvingSlots(p Port, length int, r Reduction) slots {
	half := r.widest(length, 2)
	steps := r.segments(half)
	return newSlots(p, r.widest(half, steps), min(window, steps))
}
