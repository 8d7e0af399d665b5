package algorithm

// GatherFunc collects each rank's in as its block of root's out. out and at are nil on other ranks. root's in may be its own block of out,
// but does not overlap the rest of out.
type GatherFunc func(p Port, out []byte, at []int, in []byte, root int) error

// Gathers are the algorithms of a gather of blocks of one length.
func Gathers() []Entry[GatherFunc] {
	return []Entry[GatherFunc]{
		{Traits{Code: 1, Name: "linear", Canonical: true, Cost: Machine.rootAtOnce}, gatherLinear},
		{Traits{Code: 2, Name: "binomial", Canonical: true, Cost: Machine.rootByTree}, gatherBinomial},
	}
}

// GathersV are the ones of Gathers that take blocks of different lengths, which only root knows.
func GathersV() []Entry[GatherFunc] { return Gathers()[:1:1] }

// gatherLinear sends every block directly to root. Root sends each rank a message that it has made the call.
func gatherLinear(p Port, out []byte, at []int, in []byte, root int) error {
	rank, size := p.Rank(), p.Size()
	if rank != root {
		p.Expect(root)
		return p.Wait(p.Send(root, in))
	}
	posted := p.Handles(size)[:0]
	for i := 1; i < size; i++ {
		from := (root + i) % size
		posted = append(posted, p.Recv(from, out[at[from]:at[from+1]]))
		p.Notify(from)
	}
	copy(out[at[root]:at[root+1]], in)
	return WaitAll(p, posted...)
}

// gatherBinomial collects the blocks up the binomial tree. All have the length of in. Each parent sends its children at once a message that
// it has made the call.
func gatherBinomial(p Port, out []byte, _ []int, in []byte, root int) error {
	b := binomialOf(p, root)
	g := newGatherBuffer(p, b, len(in), out, in)
	posted := p.Handles(b.children() + 1)[:0]
	for i := b.children() - 1; i >= 0; i-- { // the smallest subtree comes first
		posted = append(posted, p.Recv(b.child(i), g.blocks(b.subtree(i))))
	}
	for i := range b.children() {
		p.Notify(b.child(i))
	}
	if !b.leaf() {
		copy(g.own(), in)
	}
	if b.number == 0 {
		if err := WaitAll(p, posted...); err != nil {
			return err
		}
		g.unwrap()
		return nil
	}
	p.Expect(b.parent())
	if err := WaitAll(p, posted...); err != nil {
		return err
	}
	posted = append(posted, p.Send(b.parent(), g.mine()))
	return WaitAll(p, posted...)
}

// gatherBuffer holds the blocks of a rank's subtree in a binomial tree, by number, while they go up to the root or down from it. All blocks
// have n bytes.
type gatherBuffer struct {
	binomial
	n     int
	whole []byte // root: all blocks, by rank; other ranks: the blocks of the subtree, by number
	spare []byte // root: the blocks of the subtree that has both the last rank and rank 0, if there is one
}

// newGatherBuffer keeps the blocks in all on the root and in own on a leaf, so that they need not be copied. On other ranks it uses scratch
// memory.
func newGatherBuffer(p Port, b binomial, n int, all, own []byte) gatherBuffer {
	g := gatherBuffer{binomial: b, n: n}
	switch {
	case b.number == 0:
		start, end := g.wrapped()
		g.whole, g.spare = all, p.Scratch((end-start)*n)
	case b.leaf():
		g.whole = own
	default:
		g.whole = p.Scratch(b.below() * n)
	}
	return g
}

// blocks returns the blocks of a subtree, from number start to before end.
func (g gatherBuffer) blocks(start, end int) []byte {
	first := start - g.number
	if g.number == 0 {
		if first = g.rank(start); first+end-start > g.size {
			return g.spare
		}
	}
	return g.whole[first*g.n : (first+end-start)*g.n]
}

// own returns the rank's own block.
func (g gatherBuffer) own() []byte { return g.blocks(g.number, g.number+1) }

// mine returns all blocks of this rank's subtree, which it exchanges with its parent.
func (g gatherBuffer) mine() []byte { return g.blocks(g.number, g.number+g.below()) }

// wrapped returns the numbers of the root's subtree that has both the last rank and rank 0, or 0, 0.
func (g gatherBuffer) wrapped() (start, end int) {
	for i := range g.children() {
		if start, end := g.subtree(i); g.rank(start) > g.rank(end-1) {
			return start, end
		}
	}
	return 0, 0
}

// ends returns the two parts of the root's blocks to which spare belongs.
func (g gatherBuffer) ends() (last, first []byte) {
	start, _ := g.wrapped()
	last = g.whole[len(g.whole)-(g.size-g.root-start)*g.n:]
	return last, g.whole[:len(g.spare)-len(last)]
}

// unwrap copies spare to the root's blocks.
func (g gatherBuffer) unwrap() {
	if len(g.spare) > 0 {
		last, first := g.ends()
		copy(first, g.spare[copy(last, g.spare):])
	}
}

// wrap is the inverse of unwrap.
func (g gatherBuffer) wrap() {
	if len(g.spare) > 0 {
		last, first := g.ends()
		copy(g.spare[copy(g.spare, last):], first)
	}
}
