package shm

import (
	"math/bits"

	"ddpbatch/mpi/internal/element"
)

// Reduction is how buffers are combined.
type Reduction struct {
	Kernel  element.Kernel
	Kernel2 element.Kernel2 // the same; nil: the result of Kernel is copied
	Size    int             // bytes of an element: a power of 2 up to 64
}

// AllReduce combines the bufs of all ranks, in place.
func (n *Node) AllReduce(w Waiter, fingerprint Fingerprint, buf []byte, r *Reduction) error {
	return n.reduce(w, fingerprint, buf, everyone, r)
}

// Reduce leaves the result in root's buf. The others' are not changed.
func (n *Node) Reduce(w Waiter, fingerprint Fingerprint, buf []byte, root int, r *Reduction) error {
	return n.reduce(w, fingerprint, buf, root, r)
}

// Scan leaves in each rank's buf what those of the ranks up to it combine to.
func (n *Node) Scan(w Waiter, fingerprint Fingerprint, buf []byte, r *Reduction) error {
	return n.reduce(w, fingerprint, buf, prefixes, r)
}

// These stand for the root of a reduction whose result goes to every rank, and of a scan.
const (
	everyone = -1
	prefixes = -2
)

// reduce leaves the result with root or with everyone, or leaves each rank its own prefix. In an inline call a rank waits only for the
// ranks whose data it combines.
func (n *Node) reduce(w Waiter, fingerprint Fingerprint, buf []byte, root int, r *Reduction) error {
	fits := len(buf) <= inlineSize
	var ref uint64
	if root != prefixes { // a scan's buffers differ in the end: they are not combined where they are
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

// splitFrom is the longest buffer that every rank reads in full from all others. Beyond, each rank reduces a part only, and the
// ranks meet once more.
const splitFrom = 2 << 10

// reduceInline combines what the first ranks have inline; this one is among them.
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

// reduceDirect has each rank combine one part of the ranks' own buffers, and write it to them. The
// parts do not share a cache line where the buffers begin at one.
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

// reduceSplit is reduceStaged for what fits in one round, and was staged inline before the ranks met.
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

// chunks cuts a buffer into rounds of one piece for each of p ranks.
type chunks struct {
	buf    []byte
	p      int
	piece  int    // bytes, whole cache lines
	inline bool   // staged there,
	place  uint64 // that of the call
}

// at is rank r's piece of a round in the buffer: empty or short at the end.
func (c *chunks) at(round, r int) []byte { return window(c.buf, round*c.p+r, c.piece) }

// staged is the same piece in the staging of rank by.
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

// reducePiece combines this rank's pieces of a round, and leaves the result where the pieces came from: those lines of memory are here
// now, to be written to, and go back to their ranks when these fetch the result, which is where they are filled again.
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

// fetchResults copies the other ranks' results from where they have left them.
func (n *Node) fetchResults(c *chunks, round int) {
	for r := range n.ranks {
		if r != n.rank {
			copy(c.at(round, r), n.staged(c, n.rank, round, r))
		}
	}
}

// ReduceScatter leaves block i of the result with rank i, in out, which has that block's length. in is
// not changed; out does not overlap it.
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

// foldBlock is how many bytes of all ranks are combined at a time, so that what is between the levels of the
// tree, and what is written more than once, stays in the L1 cache.
const foldBlock = 8 << 10

// combine reduces n.sources, one for each rank that takes part, in the canonical order, into all of n.targets. All have the
// same length. A target may be exactly one of the sources, and overlaps no other.
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

// combineBlock is combine for bytes from to to. Only the last step of the tree writes to a target, when
// the sources have been read.
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

// subtree combines the sources of ranks lo to hi, and returns where the result is: in the scratch
// of level, or the source itself if there is one only. It uses the levels from there on.
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

// combinePrefixes leaves in each of n.sources what those up to it combine to, in the canonical order of these.
func (n *Node) combinePrefixes(k element.Kernel) {
	length := len(n.sources[0])
	for from := 0; from < length; from += foldBlock {
		n.prefixBlock(k, from, min(from+foldBlock, length))
	}
}

// prefixBlock is combinePrefixes for bytes from to to. When it comes to source i, the scratch of level l has the sum of 2^l sources for
// each bit l of i that is set, as a binary counter has carried them: those of the highest bit come first.
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

// lowerHalf is how many of size ranks are on the left of the tree's root: the largest power of 2 below size.
func lowerHalf(size int) int { return 1 << (bits.Len(uint(size-1)) - 1) }
