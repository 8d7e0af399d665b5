package shm

// stream runs rounds in which every rank fills a chunk of its staging, if it has something to give, and then reads the
// others' chunks of that round.
//
// When a rank fills chunk c+1, all others have filled chunk c, which they do after they have drained
// chunk c-2: that is the one that lay in the same place. So depth is 3, and a rank never waits for the
// draining itself. The first chunk of a call may be filled at once, as the other ranks are in the call,
// and so are past the one before it.
func (n *Node) stream(w Waiter, rounds int, fill, drain func(round int)) error {
	base := n.clocks[filled]
	for round := range rounds {
		if round == 0 {
			fill(0)
			n.tick(w, filled)
		}
		if err := n.await(w, filled, base+uint64(round)+1); err != nil {
			return err
		}
		if round+1 < rounds {
			fill(round + 1)
			n.tick(w, filled)
		}
		drain(round)
	}
	return nil
}

// stage is bytes from to to of rank r's chunk of a round.
func (n *Node) stage(r, round, from, to int) []byte {
	return n.ranks[r].stages[round%depth][from:to]
}

// window is the part of a block that a round takes: bytes round*piece and on, at most piece of them.
func window(block []byte, round, piece int) []byte {
	from := min(round*piece, len(block))
	return block[from:min(from+piece, len(block))]
}

// roundsOf is how many windows of piece bytes cover length bytes.
func roundsOf(length, piece int) int { return (length + piece - 1) / piece }
