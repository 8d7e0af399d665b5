package algorithm

// branch is a rank's place in a tree that a buffer goes down.
type branch struct {
	parent   int // or none
	children int
	child    func(i int) int
}

// relay takes buf from its parent and passes it on to its children, in segments: one is sent on while the next ones come. Given
// several branches, each carries an equal share of buf. Only the root may have children in more than one: who waits
// for the one in order to go on with the other would break the flow of both.
//
// At once, each rank tells its parents that it is there, and none returns before it has heard
// that of its children (see the rule at the tables).
func relay(p Port, buf []byte, segment int, branches ...branch) error {
	share := func(i int) []byte { return buf[len(buf)*i/len(branches) : len(buf)*(i+1)/len(branches)] }
	room, steps := 0, 0
	for i, b := range branches {
		room += (cuts(len(share(i)), segment) + 1) * (b.children + 1)
		steps = max(steps, cuts(len(share(i)), segment))
	}
	posted := p.Tickets(room)[:0]
	for _, b := range branches {
		if b.parent != none {
			posted = append(posted, p.Send(b.parent, nil))
		}
		for c := range b.children {
			posted = append(posted, p.Recv(b.child(c), nil))
		}
	}
	next := len(posted)
	for k := range steps {
		for i, b := range branches {
			if b.parent != none && k < cuts(len(share(i)), segment) {
				posted = append(posted, p.Recv(b.parent, cut(share(i), segment, k)))
			}
		}
	}
	for k := range steps {
		for i, b := range branches {
			if k >= cuts(len(share(i)), segment) {
				continue
			}
			if b.parent != none {
				next++
			}
			if b.parent != none && b.children > 0 {
				if err := p.Wait(posted[next-1]); err != nil {
					return err
				}
			}
			for c := range b.children {
				posted = append(posted, p.Send(b.child(c), cut(share(i), segment, k)))
			}
		}
	}
	return WaitAll(p, posted...)
}
