package algorithm

// AllGatherFunc fills in all blocks of buf. Each rank's own block is in it at the start.
type AllGatherFunc func(p Port, buf []byte, at []int) error

// AllGathers are the algorithms of an all-gather. All take blocks of different lengths.
func AllGathers() []Entry[AllGatherFunc] {
	return []Entry[AllGatherFunc]{
		{Traits{Code: 1, Name: "recursive_doubling", Canonical: true, Fits: powerOfTwo, Cost: Machine.byTree}, allGatherDoubling},
		{Traits{Code: 2, Name: "direct", Canonical: true, Cost: Machine.allAtOnce}, allGatherDirect},
		{Traits{Code: 3, Name: "bruck", Canonical: true, Cost: costAllGatherBruck}, allGatherBruck},
		{Traits{Code: 4, Name: "neighbour_exchange", Canonical: true, Fits: even, Cost: costAllGatherNeighbour}, allGatherNeighbour},
		{Traits{Code: 5, Name: "ring", Canonical: true, Cost: Machine.oneByOne}, allGatherRing},
	}
}

// allGatherDirect sends the rank's own block to every other rank, all at the same time. It has one round, and the most messages.
func allGatherDirect(p Port, buf []byte, at []int) error {
	rank, size := p.Rank(), p.Size()
	posted := p.Handles(2 * size)[:0]
	for i := 1; i < size; i++ {
		from := (rank - i + size) % size
		posted = append(posted, p.Recv(from, buf[at[from]:at[from+1]]))
	}
	for i := 1; i < size; i++ {
		posted = append(posted, p.Send((rank+i)%size, buf[at[rank]:at[rank+1]]))
	}
	return WaitAll(p, posted...)
}

// allGatherDoubling is recursive doubling: pairs of ranks exchange what they have, then pairs of pairs, and so on. Group sizes are powers
// of two (Thakur, Rabenseifner and Gropp 2005, section 4.1).
func allGatherDoubling(p Port, buf []byte, at []int) error {
	rank, size := p.Rank(), p.Size()
	posted := p.Handles(2 * levels(size))[:0]
	team := func(rank, n int) []byte { // the blocks of the n ranks, a power of two, around rank
		first := rank &^ (n - 1)
		return buf[at[first]:at[first+n]]
	}
	for n := 1; n < size; n *= 2 {
		posted = append(posted, p.Recv(rank^n, team(rank^n, n)))
	}
	for k, n := 0, 1; n < size; k, n = k+1, n*2 {
		posted = append(posted, p.Send(rank^n, team(rank, n)))
		if err := p.Wait(posted[k]); err != nil {
			return err
		}
	}
	return WaitAll(p, posted...)
}

// allGatherBruck doubles the number of blocks of every rank in each round, for any size. Rank r has its own block and those of the ranks
// after it. It gets as many more from the rank whose blocks begin where its blocks end (Bruck et al. 1997). Scratch memory holds the blocks
// in that order; at the end they are copied to their places.
func allGatherBruck(p Port, buf []byte, at []int) error {
	rank, size := p.Rank(), p.Size()
	turned := p.Scratch(len(buf))
	start := func(i int) int { // where the block of rank+i begins, for i from 0 to size
		if rank+i < size {
			return at[rank+i] - at[rank]
		}
		return len(buf) - at[rank] + at[rank+i-size]
	}
	copy(turned, buf[at[rank]:at[rank+1]])

	posted := p.Handles(2 * levels(size))[:0]
	for n := 1; n < size; n *= 2 {
		more := min(n, size-n)
		received := p.Recv((rank+n)%size, turned[start(n):start(n+more)])
		posted = append(posted, received, p.Send((rank-n+size)%size, turned[:start(more)]))
		if err := p.Wait(received); err != nil {
			return err
		}
	}
	if err := WaitAll(p, posted...); err != nil {
		return err
	}
	own := start(1)
	before := at[rank]
	copy(buf[at[rank+1]:], turned[own:len(buf)-before])
	copy(buf[:before], turned[len(buf)-before:])
	return nil
}

// costAllGatherBruck is L alpha + (p-1)/p n beta with L = ceil(log2 p), and n gamma to copy the blocks to their places.
func costAllGatherBruck(m Machine, size, n int) float64 {
	return m.byTree(size, n) + m.copied(float64(n))
}

// allGatherNeighbour is neighbor exchange: ranks form pairs, alternately with the one and the other neighbor, and exchange the blocks that
// they got last. Two blocks travel each way at a time, so it takes half the rounds of a ring (Chen, Zhang, Zhang and Yuan 2005). Group
// sizes are even.
func allGatherNeighbour(p Port, buf []byte, at []int) error {
	rank, size := p.Rank(), p.Size()
	if size == 1 {
		return nil
	}
	// Even ranks begin with the neighbor to the right. The pairs of blocks that come from there are further to the right each time, those
	// from the left further to the left.
	direction := 1
	if rank%2 == 1 {
		direction = -1
	}
	neighbours := [2]int{(rank + direction + size) % size, (rank - direction + size) % size}
	pair := rank &^ 1 // the first of the last two blocks that came
	latest := [2]int{pair, pair}
	shift := [2]int{2 * direction, -2 * direction}

	posted := p.Handles(size)[:0]
	exchange := func(with int, out, in []byte) error {
		received := p.Recv(with, in)
		posted = append(posted, received, p.Send(with, out))
		return p.Wait(received)
	}
	first := neighbours[0]
	if err := exchange(first, buf[at[rank]:at[rank+1]], buf[at[first]:at[first+1]]); err != nil {
		return err
	}
	for i := 1; i < size/2; i++ {
		side := i % 2
		latest[side] = (latest[side] + shift[side] + size) % size
		come := latest[side]
		if err := exchange(neighbours[side], buf[at[pair]:at[pair+2]], buf[at[come]:at[come+2]]); err != nil {
			return err
		}
		pair = come
	}
	return WaitAll(p, posted...)
}

// costAllGatherNeighbour is p/2 alpha + (p-1)/p n beta.
func costAllGatherNeighbour(m Machine, size, n int) float64 {
	return float64(size/2)*m.Alpha + m.ofBlocks(size, n)
}

// allGatherRing passes blocks around the ring, each segment as soon as it has come. So a long block among short ones does not delay any
// rank (Thakur, Rabenseifner and Gropp 2005, section 4.1).
func allGatherRing(p Port, buf []byte, at []int) error {
	rank, size := p.Rank(), p.Size()
	return circulate(p, ring{rank, (rank + 1) % size, (rank - 1 + size) % size},
		func(i int) []byte { return buf[at[i]:at[i+1]] })
}

// ring is a rank's index in a ring, with the ranks that it sends to and receives from.
type ring struct{ index, right, left int }

// circulate gives each rank the blocks of all other ranks.
func circulate(p Port, r ring, block func(index int) []byte) error {
	size := p.Size()
	from := func(step int) []byte { return block((r.index - step + size) % size) }

	room := 0
	for step := range size {
		room += cuts(len(from(step)), segmentBytes)
	}
	posted := p.Handles(2 * room)[:0]
	for step := 1; step < size; step++ {
		b := from(step)
		for i := range cuts(len(b), segmentBytes) {
			posted = append(posted, p.Recv(r.left, cut(b, segmentBytes, i)))
		}
	}
	next := 0
	for step := range size - 1 {
		b := from(step)
		for i := range cuts(len(b), segmentBytes) {
			if step > 0 {
				if err := p.Wait(posted[next]); err != nil {
					return err
				}
				next++
			}
			posted = append(posted, p.Send(r.right, cut(b, segmentBytes, i)))
		}
	}
	return WaitAll(p, posted...)
}
