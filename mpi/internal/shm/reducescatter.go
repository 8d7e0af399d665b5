package shm

import "fmt"

// ReduceScatter leaves block i of the result with rank i, in out, which has that block's length. in is
// not changed; out does not overlap it.
func (n *Node) ReduceScatter(w Waiter, stamp Stamp, out, in []byte, at []int, r *Reduction) error {
	if err := n.checkScatter(out, in, at, r); err != nil {
		return n.fail(err)
	}
	fits := len(in) <= inlineSize
	var inline []byte
	if fits {
		inline = in
	}
	if err := n.enter(w, stamp, n.refOf(in), inline); err != nil {
		return err
	}
	way, err := n.choose(len(in), r.Size, fits)
	switch {
	case err != nil:
		return err
	case way == staged:
		return n.reduceScatterStaged(w, out, in, at, r)
	}
	for i := range n.ranks {
		from := n.ranks[i].view
		if way == inlined {
			from = n.ranks[i].data(n.parity(), len(in))
		}
		n.sources[i] = block(from, at, n.rank)
	}
	n.targets = append(n.targets[:0], out)
	n.combine(r)
	if way == inlined {
		return nil
	}
	n.tick(w, finished)
	return n.await(w, finished, n.clocks[finished])
}

func (n *Node) checkScatter(out, in []byte, at []int, r *Reduction) error {
	if err := n.checkBounds(in, at); err != nil {
		return err
	}
	for _, bound := range at {
		if err := r.check(bound); err != nil {
			return err
		}
	}
	if own := block(in, at, n.rank); len(out) != len(own) {
		return fmt.Errorf("a result of %d bytes for a block of %d", len(out), len(own))
	}
	return nil
}

func (n *Node) reduceScatterStaged(w Waiter, out, in []byte, at []int, r *Reduction) error {
	size := chunkSize / len(n.ranks) / line * line // of a piece, one for each rank
	return n.stream(w, roundsOf(longestBlock(at), size), func(round int) {
		for i := range n.ranks {
			if i != n.rank {
				piece := window(block(in, at, i), round, size)
				copy(n.stage(n.rank, round, i*size, i*size+len(piece)), piece)
			}
		}
	}, func(round int) {
		result := window(out, round, size)
		for i := range n.ranks {
			n.sources[i] = n.stage(i, round, n.rank*size, n.rank*size+len(result))
		}
		n.sources[n.rank] = window(block(in, at, n.rank), round, size)
		n.targets = append(n.targets[:0], result)
		n.combine(r)
	})
}
