package shm

// reduceStaged goes through buf in chunks of one piece a rank: a rank stages the others' pieces,
// combines its own from buf and the others' staging, leaves the result there, and copies the
// other results back from its own. Of n bytes, 2 (p-1)/p n cross from core to core.
//
// When a rank fills chunk c+1, all others have finished chunk c-1, and it has copied their results back: nobody touches its
// staging of chunk c-2 any more, which is the one that lay in the same place.
func (n *Node) reduceStaged(w Waiter, buf []byte, root int, r *Reduction) error {
	p := len(n.ranks)
	rounds := roundsOf(len(buf), chunkSize/p/line*line*p)
	c := chunks{buf: buf, p: p, piece: roundUp(roundsOf(len(buf), rounds*p))}
	filledBase, finishedBase := n.clocks[filled], n.clocks[finished]
	n.stageOthers(&c, 0)
	n.tick(w, filled)
	for round := range rounds {
		done := uint64(round) + 1
		if err := n.await(w, filled, filledBase+done); err != nil {
			return err
		}
		n.reducePiece(&c, round, root, r)
		n.tick(w, finished)
		if round+1 < rounds {
			n.stageOthers(&c, round+1)
			n.tick(w, filled)
		}
		if err := n.await(w, finished, finishedBase+done); err != nil {
			return err
		}
		if root == everyone || root == n.rank {
			n.fetchResults(&c, round)
		}
	}
	return nil
}

// reduceSplit is reduceStaged for what fits in one round, and was staged inline before the ranks met.
func (n *Node) reduceSplit(w Waiter, c *chunks, root int, r *Reduction) error {
	n.reducePiece(c, 0, root, r)
	n.tick(w, finished)
	if err := n.await(w, finished, n.clocks[finished]); err != nil {
		return err
	}
	if root == everyone || root == n.rank {
		n.fetchResults(c, 0)
	}
	return nil
}

// chunks cuts a buffer into rounds of one piece for each of p ranks.
type chunks struct {
	buf    []byte
	p      int
	piece  int    // bytes, whole cache lines
	inline bool   // staged there,
	parity uint64 // of the call
}

// at is rank r's piece of a round in the buffer: empty or short at the end.
func (c *chunks) at(round, r int) []byte { return window(c.buf, round*c.p+r, c.piece) }

// staged is the same piece in the staging of rank by.
func (n *Node) staged(c *chunks, by, round, r int) []byte {
	if c.inline {
		return window(n.ranks[by].inline[c.parity][:len(c.buf)], r, c.piece)
	}
	return n.stage(by, round, r*c.piece, r*c.piece+len(c.at(round, r)))
}

func (n *Node) stageOthers(c *chunks, round int) {
	for r := range n.ranks {
		if r != n.rank {
			copy(n.staged(c, n.rank, round, r), c.at(round, r))
		}
	}
}

// reducePiece combines this rank's pieces of a round, and leaves the result where the pieces came from: those lines of memory are here
// now, to be written to, and go back to their ranks when these fetch the result, which is where they are filled again.
func (n *Node) reducePiece(c *chunks, round, root int, r *Reduction) {
	for i := range n.ranks {
		n.sources[i] = n.staged(c, i, round, n.rank)
	}
	n.sources[n.rank] = c.at(round, n.rank)
	n.targets = n.targets[:0]
	if root == everyone || root == n.rank {
		n.targets = append(n.targets, n.sources[n.rank])
	}
	for i := range n.ranks {
		if i != n.rank && (root == everyone || root == i) {
			n.targets = append(n.targets, n.sources[i])
		}
	}
	n.combine(r)
}

// fetchResults copies the other ranks' results from where they have left them.
func (n *Node) fetchResults(c *chunks, round int) {
	for r := range n.ranks {
		if r != n.rank {
			copy(c.at(round, r), n.staged(c, n.rank, round, r))
		}
	}
}
