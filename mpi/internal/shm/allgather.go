package shm

// AllGather fills all blocks of buf; each rank's own is there at the start. Block i is buf[at[i]:at[i+1]].
func (n *Node) AllGather(w Waiter, stamp Stamp, buf []byte, at []int) error {
	if err := n.checkBounds(buf, at); err != nil {
		return n.fail(err)
	}
	longest := longestBlock(at)
	fits := longest <= copyLimit
	var inline []byte
	if fits {
		inline = block(buf, at, n.rank)
	}
	if err := n.enter(w, stamp, n.refOf(buf), inline); err != nil {
		return err
	}
	way, err := n.choose(len(buf), 1, fits)
	switch {
	case err != nil:
		return err
	case way == staged:
		return n.allGatherStaged(w, buf, at, longest)
	}
	for r := range n.ranks {
		to := block(buf, at, r)
		switch {
		case r == n.rank:
		case way == direct:
			copy(to, block(n.ranks[r].view, at, r))
		default:
			copy(to, n.ranks[r].data(n.parity(), len(to)))
		}
	}
	if way == inlined {
		return nil
	}
	n.tick(w, finished)
	return n.await(w, finished, n.clocks[finished])
}

func (n *Node) allGatherStaged(w Waiter, buf []byte, at []int, longest int) error {
	size := copyPiece(longest)
	return n.stream(w, roundsOf(longest, size), func(round int) {
		piece := window(block(buf, at, n.rank), round, size)
		copy(n.stage(n.rank, round, 0, len(piece)), piece)
	}, func(round int) {
		for r := range n.ranks {
			if r != n.rank {
				piece := window(block(buf, at, r), round, size)
				copy(piece, n.stage(r, round, 0, len(piece)))
			}
		}
	})
}
