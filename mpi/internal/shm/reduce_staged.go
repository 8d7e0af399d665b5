package shm

// reduceStaged goes through buf in chunks of one piece a rank: a rank stages the others' pieces,
// combines its own from buf and the others' staging, stages the result, and copies the
// other results back. Of n bytes it reads 2 (p-1)/p n from other ranks.
//
// When a rank fills chunk c+1 all others have filled chunk c, which they do after they have
// copied the results of chunk c-2 back: that is the one that lay in the same place.
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

// chunks cuts a buffer into rounds of one piece for each of p ranks.
type chunks struct {
	buf   []byte
	p     int
	piece int // bytes, whole cache lines
}

// at is rank r's piece of a round in the buffer: empty or short at the end.
func (c *chunks) at(round, r int) []byte { return window(c.buf, round*c.p+r, c.piece) }

// staged is the same piece in the staging of rank by.
func (n *Node) staged(c *chunks, by, round, r int) []byte {
	return n.stage(by, round, r*c.piece, r*c.piece+len(c.at(round, r)))
}

func (n *Node) stageOthers(c *chunks, round int) {
	for r := range n.ranks {
		if r != n.rank {
			copy(n.staged(c, n.rank, round, r), c.at(round, r))
		}
	}
}

func (n *Node) reducePiece(c *chunks, round, root int, r *Reduction) {
	own, result := c.at(round, n.rank), n.staged(c, n.rank, round, n.rank)
	for i := range n.ranks {
		n.sources[i] = n.staged(c, i, round, n.rank)
	}
	n.sources[n.rank] = own
	n.targets = append(n.targets[:0], result)
	if root == everyone || root == n.rank {
		n.targets = append(n.targets, own)
	}
	n.combine(r)
}

func (n *Node) fetchResults(c *chunks, round int) {
	for r := range n.ranks {
		if r != n.rank {
			copy(c.at(round, r), n.staged(c, r, round, r))
		}
	}
}
