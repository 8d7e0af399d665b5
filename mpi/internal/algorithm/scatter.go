package algorithm

// ScatterFunc is the inverse of GatherFunc: each rank receives its block of root's in as its out. root's out may be its own block of in,
// but does not overlap the rest of in.
type ScatterFunc func(p Port, out, in []byte, at []int, root int) error

// Scatters are the algorithms of a scatter of blocks of one length.
func Scatters() []Entry[ScatterFunc] {
	return []Entry[ScatterFunc]{
		{Traits{Code: 1, Name: "linear", Canonical: true, Cost: Machine.rootAtOnce}, scatterLinear},
		{Traits{Code: 2, Name: "binomial", Canonical: true, Cost: Machine.rootByTree}, scatterBinomial},
	}
}

// ScattersV are the ones of Scatters that take blocks of different lengths, which only root knows.
func ScattersV() []Entry[ScatterFunc] { return Scatters()[:1:1] }

// scatterLinear sends every block directly from root. Root receives a message from each rank that it has made the call.
func scatterLinear(p Port, out, in []byte, at []int, root int) error {
	rank, size := p.Rank(), p.Size()
	if rank != root {
		p.Notify(root)
		return p.Wait(p.Recv(root, out))
	}
	posted := p.Handles(size)[:0]
	for i := 1; i < size; i++ {
		to := (root + i) % size
		p.Expect(to)
		posted = append(posted, p.Send(to, in[at[to]:at[to+1]]))
	}
	copy(out, in[at[root]:at[root+1]])
	return WaitAll(p, posted...)
}

// scatterBinomial sends the blocks down the binomial tree. All have the length of out. Each rank sends its parent at once a message that it
// has made the call.
func scatterBinomial(p Port, out, in []byte, _ []int, root int) error {
	b := binomialOf(p, root)
	g := newGatherBuffer(p, b, len(out), in, out)
	posted := p.Handles(b.children() + 1)[:0]
	if b.number == 0 {
		g.wrap()
	} else {
		p.Notify(b.parent())
		received := p.Recv(b.parent(), g.mine())
		posted = append(posted, received)
		if err := p.Wait(received); err != nil {
			return err
		}
	}
	for i := range b.children() {
		posted = append(posted, p.Send(b.child(i), g.blocks(b.subtree(i))))
		p.Expect(b.child(i))
	}
	if !b.leaf() {
		copy(out, g.own())
	}
	return WaitAll(p, posted...)
}
