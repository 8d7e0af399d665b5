package shm

// Broadcast copies root's buf to the others. It goes directly wherever root's buffer is registered.
func (n *Node) Broadcast(w Waiter, stamp Stamp, buf []byte, root int) error {
	if err := n.checkRoot(root); err != nil {
		return n.fail(err)
	}
	var ref uint64
	var inline []byte
	fits := len(buf) <= copyLimit
	if n.rank == root {
		ref = n.refOf(buf)
		if fits {
			inline = buf
		}
	}
	if err := n.enter(w, stamp, ref, inline); err != nil {
		return err
	}
	switch {
	case n.ranks[root].ref != 0:
		return n.broadcastDirect(w, buf, root)
	case !fits:
		return n.broadcastStaged(w, buf, root)
	case n.rank != root:
		copy(buf, n.ranks[root].data(n.parity(), len(buf)))
	}
	return nil
}

// copyLimit is the longest block that is copied inline: staged, the ranks copy longer ones at once.
const copyLimit = 16 << 10

func (n *Node) broadcastDirect(w Waiter, buf []byte, root int) error {
	view, err := n.resolve(root, len(buf), 1)
	if err != nil {
		return n.fail(err)
	}
	if n.rank != root {
		copy(buf, view)
	}
	n.tick(w, finished)
	return n.await(w, finished, n.clocks[finished])
}

func (n *Node) broadcastStaged(w Waiter, buf []byte, root int) error {
	size := copyPiece(len(buf))
	return n.stream(w, roundsOf(len(buf), size), func(round int) {
		if n.rank == root {
			piece := window(buf, round, size)
			copy(n.stage(root, round, 0, len(piece)), piece)
		}
	}, func(round int) {
		if n.rank != root {
			piece := window(buf, round, size)
			copy(piece, n.stage(root, round, 0, len(piece)))
		}
	})
}

// copyPiece is how much of a block is staged in a round: little of a short one, so that the ranks soon copy at
// the same time, and more of a long one, for fewer waits.
func copyPiece(length int) int { return roundUp(min(max(copyLimit, length/16), chunkSize)) }
