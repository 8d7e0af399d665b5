package shm

import "ddpbatch/mpi/internal/algorithm"

// Broadcast copies root's buf to the other ranks. If they can reach root's buf, they copy it from there. If it travels inline, they wait
// only for root, and root waits for no rank.
func (n *Node) Broadcast(w Waiter, fingerprint Fingerprint, buf []byte, root int) error {
	fits := len(buf) <= copyLimit
	var ref uint64
	if n.rank == root {
		ref = n.reach(buf, len(buf) >= readFrom)
	}
	whom := n.all()
	if fits {
		whom = only(root)
	}
	if err := n.enter(w, fingerprint, ref, inlineIf(buf, fits && n.rank == root), whom); err != nil {
		return err
	}
	switch {
	case n.ranks[root].ref != 0:
		return n.broadcastDirect(w, buf, root)
	case !fits:
		return n.broadcastStaged(w, buf, root)
	case n.rank != root:
		copy(buf, n.ranks[root].data(n.place(), len(buf)))
	}
	return nil
}

// inlineIf returns data if gives is set, and nil otherwise.
func inlineIf(data []byte, gives bool) []byte {
	if gives {
		return data
	}
	return nil
}

func (n *Node) broadcastDirect(w Waiter, buf []byte, root int) error {
	if err := n.resolve(root, len(buf), 1, anywhere); err != nil {
		return n.fail(err)
	}
	if err := n.awaitEntry(w, n.all()); err != nil {
		return err
	}
	return n.fetchBlocks(w, len(buf), func(r int) (to []byte, offset int) {
		if r == root {
			to = buf
		}
		return to, 0
	})
}

func (n *Node) broadcastStaged(w Waiter, buf []byte, root int) error {
	size := copyPiece(len(buf))
	return n.passChunks(w, roundsOf(len(buf), size), func(round int) {
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

// AllGather fills in all blocks of out. Block i, from at[i] to at[i+1], is rank i's in, which may already be that block of out.
func (n *Node) AllGather(w Waiter, fingerprint Fingerprint, out []byte, at []int, in []byte) error {
	longest := longestBlock(at)
	fits, reads := longest <= copyLimit, longest >= readFrom
	if err := n.enter(w, fingerprint, n.reach(in, reads), inlineIf(in, fits), n.all()); err != nil {
		return err
	}
	way, err := n.choose(func(r int) int { return at[r+1] - at[r] }, 1, fits, anywhere)
	if err != nil {
		return err
	}
	if own := block(out, at, n.rank); len(own) > 0 && &own[0] != &in[0] {
		copy(own, in)
	}
	switch way {
	case staged:
		return n.allGatherStaged(w, out, at, in, longest)
	case direct:
		return n.fetchBlocks(w, longest, func(r int) (to []byte, offset int) { return block(out, at, r), 0 })
	}
	for r := range n.ranks {
		if to := block(out, at, r); r != n.rank {
			copy(to, n.ranks[r].data(n.place(), len(to)))
		}
	}
	return nil
}

func (n *Node) allGatherStaged(w Waiter, out []byte, at []int, in []byte, longest int) error {
	size := copyPiece(longest)
	return n.passChunks(w, roundsOf(longest, size), func(round int) {
		piece := window(in, round, size)
		copy(n.stage(n.rank, round, 0, len(piece)), piece)
	}, func(round int) {
		for r := range n.ranks {
			if r != n.rank {
				piece := window(block(out, at, r), round, size)
				copy(piece, n.stage(r, round, 0, len(piece)))
			}
		}
	})
}

// AllToAll sends block i of in to rank i, which receives it as the block of this rank in its out. in and out have the same length, a whole
// number of equal blocks, and do not overlap. Block i is from at[i] to at[i+1].
func (n *Node) AllToAll(w Waiter, fingerprint Fingerprint, out, in []byte, at []int) error {
	fits, ref := len(in) <= inlineSize, n.reach(in, len(in) >= readFrom*len(n.ranks))
	if fits && ref == 0 {
		n.giveOthers(in, at)
	}
	if err := n.enter(w, fingerprint, ref, nil, n.all()); err != nil {
		return err
	}
	way, err := n.choose(func(int) int { return len(in) }, 1, fits, anywhere)
	if err != nil {
		return err
	}
	copy(block(out, at, n.rank), block(in, at, n.rank))
	switch way {
	case staged:
		return n.allToAllStaged(w, out, in, at)
	case direct:
		return n.fetchBlocks(w, at[1], func(r int) (to []byte, offset int) { return block(out, at, r), at[n.rank] })
	}
	for r := range n.ranks {
		if r != n.rank {
			copy(block(out, at, r), n.givenBy(r, at))
		}
	}
	return nil
}

func (n *Node) allToAllStaged(w Waiter, out, in []byte, at []int) error {
	size := n.stagedBlock()
	return n.passChunks(w, roundsOf(at[1], size), func(round int) {
		n.stageBlocks(in, at, round, size)
	}, func(round int) {
		for r := range n.ranks {
			if r != n.rank {
				piece := window(block(out, at, r), round, size)
				copy(piece, n.stage(r, round, n.rank*size, n.rank*size+len(piece)))
			}
		}
	})
}

// stagedBlock returns how much of each block fits in a stage.
func (n *Node) stagedBlock() int { return chunkSize / len(n.ranks) / line * line }

// stageBlocks stages a round's piece, of size bytes, of each block for another rank.
func (n *Node) stageBlocks(in []byte, at []int, round, size int) {
	for r := range n.ranks {
		if r != n.rank {
			piece := window(block(in, at, r), round, size)
			copy(n.stage(n.rank, round, r*size, r*size+len(piece)), piece)
		}
	}
}

// Scatter copies each block of root's in to the out of its rank. All blocks have the length of out. Block r is in[at[r]:at[r+1]]. out may
// be root's own block. Root waits for no rank if the blocks of the others fit inline together.
func (n *Node) Scatter(w Waiter, p algorithm.Port, fingerprint Fingerprint, out, in []byte, at []int, root int) error {
	size, others := len(out), len(n.ranks)-1
	switch {
	case size*others > inlineSize:
		return n.ScatterV(w, p, fingerprint, out, in, at, root)
	case n.rank == root:
		n.giveOthers(in, at)
		err := n.enter(w, fingerprint, 0, nil, span{})
		copy(out, block(in, at, root))
		return err
	}
	if err := n.enter(w, fingerprint, 0, nil, only(root)); err != nil {
		return err
	}
	i := n.rank
	if i > root { // root's own block is left out
		i--
	}
	copy(out, window(n.ranks[root].data(n.place(), size*others), i, size))
	return nil
}

// giveOthers stores this rank's blocks for the others inline, for the next call, one after another, without its own block. Block r is
// in[at[r]:at[r+1]].
func (n *Node) giveOthers(in []byte, at []int) {
	before, after := in[:at[n.rank]], in[at[n.rank+1]:]
	to := n.ranks[n.rank].data(n.nextPlace(), len(before)+len(after))
	copy(to, before)
	copy(to[len(before):], after)
}

// givenBy returns the block for this rank that another rank has stored with giveOthers, with the same bounds.
func (n *Node) givenBy(r int, at []int) []byte {
	own := at[r+1] - at[r]
	from, to := at[n.rank], at[n.rank+1]
	if n.rank > r {
		from, to = from-own, to-own
	}
	return n.ranks[r].data(n.place(), at[len(n.ranks)]-own)[from:to]
}

// Gather copies each rank's in to its block of root's out. All have the length of in. Block r is out[at[r]:at[r+1]]. in may be root's own
// block. The other ranks wait for no rank if a block fits inline.
func (n *Node) Gather(w Waiter, p algorithm.Port, fingerprint Fingerprint, out []byte, at []int, in []byte, root int) error {
	if len(in) > inlineSize {
		return n.GatherV(w, p, fingerprint, out, at, in, root)
	}
	if n.rank != root {
		return n.enter(w, fingerprint, 0, in, span{})
	}
	copy(block(out, at, root), in)
	if err := n.enter(w, fingerprint, 0, nil, n.all()); err != nil {
		return err
	}
	for r := range n.ranks {
		if r != root {
			copy(block(out, at, r), n.ranks[r].data(n.place(), len(in)))
		}
	}
	return nil
}

// copyLimit is the longest block that is copied inline. Longer ones are staged, because the ranks then copy at the same time.
const copyLimit = 16 << 10

// copyPiece returns how much of a block is staged in a round. For a short block it is little, so that the ranks soon copy at the same time.
// For a long one it is more, so that there are fewer waits.
func copyPiece(length int) int { return roundUp(min(max(copyLimit, length/16), chunkSize)) }

// block returns block i of buf. Its capacity ends with it, so that append cannot write beyond it.
func block(buf []byte, at []int, i int) []byte { return buf[at[i]:at[i+1]:at[i+1]] }

func longestBlock(at []int) int {
	longest := 0
	for i := range len(at) - 1 {
		longest = max(longest, at[i+1]-at[i])
	}
	return longest
}

// passChunks runs rounds. In each one, every rank fills a chunk of its staging memory, if it has data to give, and then reads the others'
// chunks of that round.
//
// When a rank fills chunk c+1, all others have filled chunk c. They do that after they have read chunk c-2, which was in the same place as
// chunk c+1. So depth is 3, and a rank never waits until others have read. The first chunk of a call may be filled at once, because the
// other ranks are in the call, and so have finished the call before it.
func (n *Node) passChunks(w Waiter, rounds int, fill, read func(round int)) error {
	base := n.counts[filled]
	for round := range rounds {
		if round == 0 {
			fill(0)
			n.count(w, filled)
		}
		if err := n.await(w, filled, base+uint64(round)+1); err != nil {
			return err
		}
		if round+1 < rounds {
			fill(round + 1)
			n.count(w, filled)
		}
		read(round)
	}
	return nil
}

// stage returns the bytes [from:to] of rank r's chunk of a round.
func (n *Node) stage(r, round, from, to int) []byte {
	return n.ranks[r].stages[round%depth][from:to]
}

// window returns the part of a block that belongs to a round: at most piece bytes from round*piece on.
func window(block []byte, round, piece int) []byte {
	from := min(round*piece, len(block))
	return block[from:min(from+piece, len(block))]
}

// roundsOf returns the number of windows of piece bytes that cover length bytes.
func roundsOf(length, piece int) int { return (length + piece - 1) / piece }

func roundUp(length int) int { return (length + line - 1) / line * line }
