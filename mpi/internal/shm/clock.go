package shm

// The clocks of a rank, in which it counts what it has done over all calls.
const (
	filled   = iota // chunks that others may read
	finished        // pieces that are reduced, or no longer needed
	clockKinds
)

// tick moves one of this rank's clocks on.
func (n *Node) tick(w Waiter, kind int) {
	n.clocks[kind]++
	n.ranks[n.rank].clocks[kind].Store(n.clocks[kind])
	w.Notify()
}

// await waits until every rank's clock has come to goal.
func (n *Node) await(w Waiter, kind int, goal uint64) error {
	n.kind, n.goal, n.next = kind, goal, 0
	if err := w.Await(n.hasReached); err != nil {
		return n.fail(err)
	}
	return nil
}

// reached tells whether the clocks are at the goal. One that was needs no second look.
func (n *Node) reached() bool {
	for ; n.next < len(n.ranks); n.next++ {
		if n.next != n.rank && n.ranks[n.next].clocks[n.kind].Load() < n.goal {
			return false
		}
	}
	return true
}
