package shm

import (
	"math/bits"

	"ddpbatch/mpi/internal/element"
)

// Reduction says how buffers are combined.
type Reduction struct {
	Kernel  element.Kernel
	Kernel2 element.Kernel2 // the same, with two destinations; nil: the result of Kernel is copied
	Size    int             // bytes of an element: a power of 2 up to 64
}

// AllReduce combines the bufs of all ranks, in place.
func (n *Node) AllReduce(w Waiter, fingerprint Fingerprint, buf []byte, r *Reduction) error {
	return n.reduce(w, fingerprint, buf, everyone, r)
}

// Reduce leaves the result in root's buf. The bufs of other ranks do not change.
func (n *Node) Reduce(w Waiter, fingerprint Fingerprint, buf []byte, root int, r *Reduction) error {
	return n.reduce(w, fingerprint, buf, root, r)
}

// Scan combines the bufs of ranks 0 to r, and leaves the result in the buf of rank r.
func (n *Node) Scan(w Waiter, fingerprint Fingerprint, buf []byte, r *Reduction) error {
	return n.reduce(w, fingerprint, buf, prefixes, r)
}

// Values for the root of reduce: everyone if the result goes to every rank, and prefixes for a scan.
const (
	everyone = -1
	prefixes = -2
)

// reduce leaves the result with root or with everyone, or leaves each rank its own prefix. In an inline call a rank waits only for the
// ranks whose data it combines.
func (n *Node) reduce(w Waiter, fingerprint Fingerprint, buf []byte, root int, r *Reduction) error {
	fits := len(buf) <= inlineSize
	var ref uint64
	if root != prefixes { // the buffers of a scan differ at the end, so they are not combined in place
		ref = n.refOf(buf)
	}
	var inline []byte
	whom := n.all()
	c := chunks{buf: buf, p: len(n.ranks)}
	switch {
	case !fits || ref != 0:
	case len(buf) > splitFrom:
		c.inline, c.place, c.piece = true, n.nextPlace(), roundUp(roundsOf(len(buf), c.p))
		n.stageOthers(&c, 0)
	case root == prefixes:
		inline, whom = buf, span{0, n.rank + 1}
	case n.rank != root:
		inline = buf
		if root != everyone {
			whom = span{}
		}
	}
	if err := n.enter(w, fingerprint, ref, inline, whom); err != nil {
		return err
	}
	if whom == (span{}) {
		return nil
	}
	way, err := staged, error(nil)
	if root != prefixes {
		way, err = n.choose(func(int) int { return len(buf) }, r.Size, fits, registered)
	} else if fits {
		way = inlined
	}
	switch {
	case err != nil:
		return err
	case way == direct:
		return n.reduceDirect(w, buf, root, r)
	case way == staged:
		return n.reduceStaged(w, buf, root, r)
	case c.inline:
		return n.reduceSplit(w, &c, root, r)
	}
	switch root {
	case prefixes:
		n.reduceInline(buf, n.rank+1, r)
	case everyone, n.rank:
		n.reduceInline(buf, len(n.ranks), r)
	}
	return nil
}

// splitFrom is the longest buffer that every rank reads in full from all others. In longer ones, each rank reduces only a part, and the
// ranks wait for each other once more.
const splitFrom = 2 << 10

// reduceInline combines the inline data of ranks 0 to ranks-1, which include this one.
func (n *Node) reduceInline(buf []byte, ranks int, r *Reduction) {
	n.sources = n.sources[:ranks]
	for i := range n.sources {
		n.sources[i] = n.ranks[i].data(n.place(), len(buf))
	}
	n.sources[n.rank] = buf
	n.targets = append(n.targets[:0], buf)
	n.combine(r)
	n.sources = n.sources[:len(n.ranks)]
}

// reduceDirect makes each rank combine one part of all ranks' buffers in place, and write the result to the buffers. The parts do not share
// a cache line if the buffers begin at one.
func (n *Node) reduceDirect(w Waiter, buf []byte, root int, r *Reduction) error {
	part := roundUp(roundsOf(len(buf), len(n.ranks)))
	for i := range n.ranks {
		n.sources[i] = window(n.ranks[i].view, n.rank, part)
	}
	n.targets = n.targets[:0]
	if root != everyone {
		n.targets = append(n.targets, n.sources[root])
	} else {
		n.targets = append(n.targets, n.sources[n.rank])
		for i := range n.ranks {
			if i != n.rank {
				n.targets = append(n.targets, n.sources[i])
			}
		}
	}
	n.combine(r)
	if err := n.checkOthers(w); err != nil {
		return err
	}
	n.count(w, finished)
	return n.await(w, finished, n.counts[finished])
}

// reduceSplit is reduceStaged for data that fits in one round, and that the ranks staged inline before the call.
func (n *Node) reduceSplit(w Waiter, c *chunks, root int, r *Reduction) error {
	n.reducePiece(c, 0, root, r)
	n.count(w, finished)
	if root >= 0 && root != n.rank {
		return nil
	}
	if err := n.await(w, finished, n.counts[finished]); err != nil {
		return err
	}
	n.fetchResults(c, 0)
	return nil
}

// reduceStaged passes buf in chunks that have one piece for each rank. A rank stages the others' pieces, combines its own from buf and from
// the others' staging memory, leaves the result there, and copies the other results back from its own staging memory. Of n bytes,
// 2 (p-1)/p n cross from core to core.
//
// When a rank fills chunk c+1, all others have finished chunk c-1, and it has copied their results back. So no rank uses its staging memory
// of chunk c-2 any more, which was in the same place as chunk c+1.
func (n *Node) reduceStaged(w Waiter, buf []byte, root int, r *Reduction) error {
	p := len(n.ranks)
	rounds := roundsOf(len(buf), chunkSize/p/line*line*p)
	c := chunks{buf: buf, p: p, piece: roundUp(roundsOf(len(buf), rounds*p))}
	filledBase, finishedBase := n.counts[filled], n.counts[finished]
	n.stageOthers(&c, 0)
	n.count(w, filled)
	for round := range rounds {
		done := uint64(round) + 1
		if err := n.await(w, filled, filledBase+done); err != nil {
			return err
		}
		n.reducePiece(&c, round, root, r)
		n.count(w, finished)
		if round+1 < rounds {
			n.stageOthers(&c, round+1)
			n.count(w, filled)
		}
		if err := n.await(w, finished, finishedBase+done); err != nil {
			return err
		}
		if root < 0 || root == n.rank {
			n.fetchResults(&c, round)
		}
	}
	return nil
}

// chunks divides a buffer into rounds with one piece for each of p ranks.
type chunks struct {
	buf    []byte
	p      int
	piece  int    // bytes, whole cache lines
	inline bool   // pieces are staged in inline memory,
	place  uint64 // at this place
}

// at returns rank r's piece of a round in the buffer. At the end of the buffer, pieces may be short or empty.
func (c *chunks) at(round, r int) []byte { return window(c.buf, round*c.p+r, c.piece) }

// staged returns the same piece in the staging memory of rank by.
func (n *Node) staged(c *chunks, by, round, r int) []byte {
	if c.inline {
		return window(n.ranks[by].inline[c.place][:len(c.buf)], r, c.piece)
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

// reducePiece combines this rank's pieces of a round, and leaves the result where the pieces came from. This core then has those cache
// lines already, to write to. They go back to their ranks when these fetch the result, and then fill the lines again.
func (n *Node) reducePiece(c *chunks, round, root int, r *Reduction) {
	for i := range n.ranks {
		n.sources[i] = n.staged(c, i, round, n.rank)
	}
	n.sources[n.rank] = c.at(round, n.rank)
	if root == prefixes {
		n.combinePrefixes(r.Kernel)
		return
	}
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

// fetchResults copies the other ranks' results to the buffer.
func (n *Node) fetchResults(c *chunks, round int) {
	for r := range n.ranks {
		if r != n.rank {
			copy(c.at(round, r), n.staged(c, n.rank, round, r))
		}
	}
}

// ReduceScatter leaves block i of the result in the out of rank i, which has that block's length. in does not change. out does not overlap
// it.
func (n *Node) ReduceScatter(w Waiter, fingerprint Fingerprint, out, in []byte, at []int, r *Reduction) error {
	fits, ref := len(in) <= inlineSize, n.refOf(in)
	if fits && ref == 0 {
		n.giveOthers(in, at)
	}
	if err := n.enter(w, fingerprint, ref, nil, n.all()); err != nil {
		return err
	}
	way, err := n.choose(func(int) int { return len(in) }, r.Size, fits, registered)
	switch {
	case err != nil:
		return err
	case way == staged:
		return n.reduceScatterStaged(w, out, in, at, r)
	}
	for i := range n.ranks {
		switch {
		case i == n.rank:
			n.sources[i] = block(in, at, i)
		case way == inlined:
			n.sources[i] = n.givenBy(i, at)
		default:
			n.sources[i] = block(n.ranks[i].view, at, n.rank)
		}
	}
	n.targets = append(n.targets[:0], out)
	n.combine(r)
	if way == inlined {
		return nil
	}
	if err := n.checkOthers(w); err != nil {
		return err
	}
	n.count(w, finished)
	return n.await(w, finished, n.counts[finished])
}

func (n *Node) reduceScatterStaged(w Waiter, out, in []byte, at []int, r *Reduction) error {
	size := n.stagedBlock()
	return n.passChunks(w, roundsOf(longestBlock(at), size), func(round int) {
		n.stageBlocks(in, at, round, size)
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

// foldBlock is the number of bytes of all ranks that are combined at a time. It is so small that intermediate results, and results that are
// written more than once, stay in the L1 cache.
const foldBlock = 8 << 10

// combine reduces n.sources, one for each rank that takes part, in canonical order, into all of n.targets. All have the same length. A
// target may be exactly one of the sources, but must not overlap another one.
func (n *Node) combine(r *Reduction) {
	if len(n.sources) == 2 && len(n.targets) == 1 {
		r.Kernel(n.targets[0], n.sources[0], n.sources[1])
		return
	}
	if len(n.sources) == 2 && len(n.targets) == 2 && r.Kernel2 != nil {
		r.Kernel2(n.targets[0], n.targets[1], n.sources[0], n.sources[1])
		return
	}
	length := len(n.targets[0])
	for from := 0; from < length; from += foldBlock {
		n.combineBlock(r.Kernel, from, min(from+foldBlock, length))
	}
}

// combineBlock is combine for the bytes [from:to]. Only the last step of the tree writes to a target, after the sources have been read.
func (n *Node) combineBlock(k element.Kernel, from, to int) {
	dst := n.targets[0][from:to]
	if size := len(n.sources); size == 1 {
		copy(dst, n.sources[0][from:to])
	} else {
		mid := lowerHalf(size)
		a := n.subtree(k, 0, mid, 0, from, to)
		b := n.subtree(k, mid, size, 1, from, to)
		k(dst, a, b)
	}
	for _, also := range n.targets[1:] {
		copy(also[from:to], dst)
	}
}

// subtree combines the sources of the ranks lo to hi-1, and returns the result. It is in the scratch memory of level, or is the source
// itself if there is only one. subtree uses the scratch memory from level on.
func (n *Node) subtree(k element.Kernel, lo, hi, level, from, to int) []byte {
	if hi-lo == 1 {
		return n.sources[lo][from:to]
	}
	mid := lo + lowerHalf(hi-lo)
	a := n.subtree(k, lo, mid, level, from, to)
	b := n.subtree(k, mid, hi, level+1, from, to)
	dst := n.scratch[level][:to-from]
	k(dst, a, b)
	return dst
}

// combinePrefixes combines, for each of n.sources, the sources up to it, in canonical order, and leaves the result in it.
func (n *Node) combinePrefixes(k element.Kernel) {
	length := len(n.sources[0])
	for from := 0; from < length; from += foldBlock {
		n.prefixBlock(k, from, min(from+foldBlock, length))
	}
}

// prefixBlock is combinePrefixes for the bytes [from:to]. It works like a binary counter: when it comes to source i, the scratch memory of
// level l has the sum of 2^l sources for each bit l that is set in i. The sums of higher bits come from earlier sources.
func (n *Node) prefixBlock(k element.Kernel, from, to int) {
	for i, source := range n.sources {
		sum, kept := source[from:to], i == len(n.sources)-1
		for level := range bits.Len(uint(i)) + 1 {
			switch partial := n.scratch[level][:to-from]; {
			case i>>level&1 == 1:
				k(sum, partial, sum)
			case !kept:
				copy(partial, sum)
				kept = true
			}
		}
	}
}

// lowerHalf returns how many of size ranks are on the left of the tree's root: the largest power of 2 less than size.
func lowerHalf(size int) int { return 1 << (bits.Len(uint(size-1)) - 1) }
