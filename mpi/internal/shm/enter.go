package shm

import "fmt"

// enter publishes that this rank is in a call, and waits until the others are. ref is that of a registered buffer, or 0; then
// inline is what others take from here.
func (n *Node) enter(w Waiter, stamp Stamp, ref uint64, inline []byte) error {
	if n.err != nil {
		return n.err
	}
	n.seq++
	n.stamp = stamp
	me := &n.ranks[n.rank]
	me.seen, me.ref = n.seq, ref
	s := me.slots[n.parity()]
	s.stamp, s.ref = stamp, ref
	if ref == 0 {
		copy(me.data(n.parity(), len(inline)), inline)
	}
	// Two slots do: a rank is here in call seq only when all are past call seq-2.
	s.flag.Store(n.seq)
	w.Entered()
	if err := w.Await(n.hasEntered); err != nil {
		return n.fail(err)
	}
	if n.fault != nil {
		return n.fail(n.fault)
	}
	return nil
}

// parity is that of the call, and nextParity that of the one to come.
func (n *Node) parity() uint64     { return n.seq & 1 }
func (n *Node) nextParity() uint64 { return (n.seq + 1) & 1 }

// fail keeps the first error.
func (n *Node) fail(err error) error {
	n.err = err
	return err
}

// entered tells whether all ranks are in this call, or one is in another, which it leaves as the fault. All are looked
// at each time: a rank that never comes does not hide one that is in a wrong call.
func (n *Node) entered() bool {
	all := true
	for r := range n.ranks {
		state := &n.ranks[r]
		if state.seen == n.seq {
			continue
		}
		s := state.slots[n.parity()]
		switch flag := s.flag.Load(); {
		case flag < n.seq:
			all = false
			continue
		case flag > n.seq:
			n.fault = fmt.Errorf("%w: rank %d is in call %d, and this is call %d", ErrCorrupt, r, flag, n.seq)
			return true
		case s.stamp != n.stamp:
			n.fault = &StampError{Rank: r, Stamp: s.stamp}
			return true
		}
		state.seen, state.ref = n.seq, s.ref
	}
	return all
}
