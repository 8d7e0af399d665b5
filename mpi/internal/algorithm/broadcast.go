package algorithm

// BroadcastFunc copies root's buf to the buf of the other ranks.
type BroadcastFunc func(p Port, buf []byte, root int) error

// Broadcasts are the algorithms of a broadcast.
func Broadcasts() []Entry[BroadcastFunc] {
	return []Entry[BroadcastFunc]{
		{Traits{Code: 1, Name: "binomial", Canonical: true, Cost: costBroadcastBinomial}, broadcastBinomial},
		{Traits{Code: 2, Name: "double_tree", Canonical: true, Cost: costBroadcastDoubleTree}, broadcastDoubleTree},
		{Traits{Code: 3, Name: "chain", Canonical: true, Cost: costBroadcastChain}, broadcastChain},
		{Traits{Code: 4, Name: "scatter_allgather", Canonical: true, Cost: costBroadcastScatter}, broadcastScatter},
		{Traits{Code: 5, Name: "star", Canonical: true, Cost: costBroadcastStar}, broadcastStar},
	}
}

// broadcastBinomial is the binomial tree: in each round, every rank that has the buffer sends it to one that does not have it (Thakur,
// Rabenseifner and Gropp 2005, section 4.2).
func broadcastBinomial(p Port, buf []byte, root int) error {
	b := binomialOf(p, root)
	return relay(p, buf, segmentBytes, branch{b.parent(), b.children(), b.child})
}

// costBroadcastBinomial is L(alpha + n beta) with L = ceil(log2 p).
func costBroadcastBinomial(m Machine, size, n int) float64 {
	return float64(levels(size)) * (m.Alpha + float64(n)*m.Beta)
}

// broadcastStar sends from root to each other rank, which is the pattern of a parameter server. Its time grows with the number of ranks. It
// is here for comparison.
func broadcastStar(p Port, buf []byte, root int) error {
	size := p.Size()
	if p.Rank() != root {
		return relay(p, buf, segmentBytes, branch{parent: root})
	}
	return relay(p, buf, segmentBytes, branch{none, size - 1, func(i int) int { return (root + 1 + i) % size }})
}

// costBroadcastStar is (p-1) n beta, and alpha for p-1 messages posted at the same time.
func costBroadcastStar(m Machine, size, n int) float64 {
	return m.posted(size-1) + float64(size-1)*float64(n)*m.Beta
}

// broadcastChain passes segments along a chain of all ranks, which begins at root. Each link carries every byte once, and all links work at
// the same time (Open MPI's pipeline; the chain of Pjesivac-Grbovic et al. 2007).
func broadcastChain(p Port, buf []byte, root int) error {
	size, rank := p.Size(), p.Rank()
	b := branch{parent: (rank - 1 + size) % size, children: 1, child: func(int) int { return (rank + 1) % size }}
	if rank == root {
		b.parent = none
	}
	if (rank+1)%size == root {
		b.children = 0
	}
	return relay(p, buf, pipelineSegment(len(buf), size-2), b)
}

// costBroadcastChain is (p-1) alpha + (p-2+m) s beta for m segments of s bytes, whose latencies overlap. Ranks between the ends send and
// receive at the same time.
func costBroadcastChain(m Machine, size, n int) float64 {
	s, beta := pipelineSegment(n, size-2), m.Beta
	if size > 2 {
		beta = m.both()
	}
	return m.pipelined(size-1, cuts(n, s), min(n, s), beta)
}

// broadcastDoubleTree sends each half of the buffer down its own binary tree, in segments. Only root has children in both trees. So all
// links are in use in both directions, and the height is that of a binary tree (Sanders, Speck and Traeff 2009).
func broadcastDoubleTree(p Port, buf []byte, root int) error {
	size := p.Size()
	number := (p.Rank() - root + size) % size
	rank := func(number int) int { return (number + root) % size }
	back := func(twin int) int { return rank(untwin(twin, size)) }

	var rooms [2][maxLevels]child
	a := balancedNode(number, size, rooms[0][:])
	b := balancedNode(twin(number, size), size, rooms[1][:])
	first := branch{none, len(a.children), func(i int) int { return rank(a.children[i].rank) }}
	second := branch{none, len(b.children), func(i int) int { return back(b.children[i].rank) }}
	if number > 0 {
		first.parent, second.parent = rank(a.parent), back(b.parent)
	}
	return relay(p, buf, doubleTreeSegment(len(buf), size), first, second)
}

// costBroadcastDoubleTree is (2L-1) alpha + 2(L-1+m) s beta, with L = ceil(log2 p) and m segments of s bytes of each half, whose latencies
// overlap. Ranks between the root and the leaves send and receive at the same time.
func costBroadcastDoubleTree(m Machine, size, n int) float64 {
	half, s, beta := n-n/2, doubleTreeSegment(n, size), m.Beta
	if size > 2 {
		beta = m.both()
	}
	depth := 2*levels(size) - 1
	return m.pipelined(depth, 2*cuts(half, s), min(half, s), beta)
}

func doubleTreeSegment(n, size int) int { return pipelineSegment(n/2, levels(size)-1) }

// broadcastScatter scatters the buffer down the binomial tree, and then gathers the parts on all ranks along a ring, in the order of the
// numbers from root (Barnett, van de Geijn et al. 1994).
func broadcastScatter(p Port, buf []byte, root int) error {
	b := binomialOf(p, root)
	start := func(i int) int { return i*(len(buf)/b.size) + min(i, len(buf)%b.size) }

	posted := p.Handles(b.children() + 1)[:0]
	if b.number > 0 {
		p.Notify(b.parent())
		posted = append(posted, p.Recv(b.parent(), buf[start(b.number):start(b.number+b.below())]))
		if err := p.Wait(posted[0]); err != nil {
			return err
		}
	}
	for i := range b.children() {
		from, to := b.subtree(i)
		posted = append(posted, p.Send(b.child(i), buf[start(from):start(to)]))
		p.Expect(b.child(i))
	}
	if err := WaitAll(p, posted...); err != nil { // circulate writes to the memory that is being sent
		return err
	}
	return circulate(p, ring{b.number, b.rank(b.number + 1), b.rank(b.number + b.size - 1)},
		func(i int) []byte { return buf[start(i):start(i+1)] })
}

// costBroadcastScatter is (L+p-1) alpha + 2 (p-1)/p n beta with L = ceil(log2 p).
func costBroadcastScatter(m Machine, size, n int) float64 {
	return float64(levels(size)+size-1)*m.Alpha + others(size, n)*(m.Beta+m.both())
}

// branch is a rank's place in a tree along which a buffer travels down.
type branch struct {
	parent   int // or none
	children int
	child    func(i int) int
}

// relay receives buf from its parent and passes it on to its children, in segments: it passes one on while the next ones come. With several
// branches, each carries an equal share of buf. Only the root may have children in more than one: otherwise a rank that waits for one
// branch would delay the other.
//
// First, each rank sends its parents a message. It returns without waiting for those of its children (see the package's rule).
func relay(p Port, buf []byte, segment int, branches ...branch) error {
	share := func(i int) []byte { return buf[len(buf)*i/len(branches) : len(buf)*(i+1)/len(branches)] }
	room, steps := 0, 0
	for i, b := range branches {
		room += cuts(len(share(i)), segment) * (b.children + 1)
		steps = max(steps, cuts(len(share(i)), segment))
	}
	for _, b := range branches {
		if b.parent != none {
			p.Notify(b.parent)
		}
		for c := range b.children {
			p.Expect(b.child(c))
		}
	}
	posted, next := p.Handles(room)[:0], 0
	for k := range steps {
		for i, b := range branches {
			if b.parent != none && k < cuts(len(share(i)), segment) {
				posted = append(posted, p.Recv(b.parent, cut(share(i), segment, k)))
			}
		}
	}
	for k := range steps {
		for i, b := range branches {
			if k >= cuts(len(share(i)), segment) {
				continue
			}
			if b.parent != none {
				next++
			}
			if b.parent != none && b.children > 0 {
				if err := p.Wait(posted[next-1]); err != nil {
					return err
				}
			}
			for c := range b.children {
				posted = append(posted, p.Send(b.child(c), cut(share(i), segment, k)))
			}
		}
	}
	return WaitAll(p, posted...)
}
