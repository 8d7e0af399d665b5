package algorithm

// broadcastDoubleTree sends each half of the buffer down a binary tree of its own, in segments. No rank but root has
// children in both: so all links are in use in both directions, and the height is that of a
// binary tree (Sanders, Speck and Traeff 2009).
func broadcastDoubleTree(p Port, buf []byte, root int) error {
	size := p.Size()
	number := (p.Rank() - root + size) % size
	rank := func(number int) int { return (number + root) % size }
	back := func(twin int) int { return rank(untwin(twin, size)) }

	var rooms [2][maxLevels]child
	a := balancedPlace(number, size, rooms[0][:])
	b := balancedPlace(twin(number, size), size, rooms[1][:])
	first := branch{none, len(a.children), func(i int) int { return rank(a.children[i].rank) }}
	second := branch{none, len(b.children), func(i int) int { return back(b.children[i].rank) }}
	if number > 0 {
		first.parent, second.parent = rank(a.parent), back(b.parent)
	}
	return relay(p, buf, doubleTreeSegment(len(buf), size), first, second)
}

// costBroadcastDoubleTree is 2(L-1+m)(alpha + s beta), with L = ceil(log2 p) and m segments of s bytes of each half.
func costBroadcastDoubleTree(m Machine, size, n int) float64 {
	if size == 1 {
		return 0
	}
	half := n - n/2
	s := doubleTreeSegment(n, size)
	return 2 * float64(levels(size)-1+cuts(half, s)) * (m.Alpha + float64(min(half, s))*m.Beta)
}

func doubleTreeSegment(n, size int) int { return pipelineSegment(n/2, levels(size)-1) }

// twin gives the numbers from root their places in the second tree. The root's is the same; the
// order of the others is turned about where that makes leaves, which are odd, of all others, and moved by one elsewhere.
func twin(number, size int) int {
	switch {
	case number == 0:
		return 0
	case size%2 == 1:
		return size - number
	}
	return number%(size-1) + 1
}

// untwin is the reverse of twin.
func untwin(number, size int) int {
	switch {
	case number == 0:
		return 0
	case size%2 == 1:
		return size - number
	}
	return (number+size-3)%(size-1) + 1
}
