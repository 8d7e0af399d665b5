package algorithm

// Entry is one algorithm of a collective, whose function has the type F.
//
// The entries of a collective are its table, which nobody changes. Where costs are equal the first entry is the better one; those that
// also take blocks of different lengths come first.
type Entry[F any] struct {
	Traits
	Run F
}

// Traits is what there is to know of an algorithm.
type Traits struct {
	Code      uint8  // its number in the header of frames: part of the wire's format
	Name      string // as users write it
	Canonical bool   // reductions: it keeps the canonical order. Others: true, they move bytes only

	// Fits tells whether a group of size ranks can use it; nil: any.
	Fits func(size int) bool

	// Cost reckons its time in seconds for size ranks, two or more, and a buffer of n bytes: the whole
	// vector of a reduction or broadcast, all blocks of all ranks of a gather or scatter, what one
	// rank sends in all of an all-to-all.
	Cost func(m Machine, size, n int) float64
}

// TraitsOf is what there is to know of the algorithms of a table.
func TraitsOf[F any](entries []Entry[F]) []Traits {
	all := make([]Traits, len(entries))
	for i := range entries {
		all[i] = entries[i].Traits
	}
	return all
}

// powerOfTwo is the Fits of algorithms that know no other sizes.
func powerOfTwo(size int) bool { return size&(size-1) == 0 }

// even is the Fits of algorithms that pair the ranks.
func even(size int) bool { return size%2 == 0 || size == 1 }

// Machine is what the costs of algorithms are reckoned with: the model of Hockney (1994),
// with a term for the reduction. Seconds, and seconds a byte.
type Machine struct {
	Alpha float64 // latency of a message
	Beta  float64 // time of a byte on the way
	Both  float64 // time of a byte each way when two ranks send to each other at once; not above Beta: the directions share nothing
	Gamma float64 // time to reduce a byte
}

// both is the time of a byte each way. It is Beta on a network that is as fast with both ways in use, and twice that where cores
// copy the bytes: each then copies what its rank sends and what it gets.
func (m Machine) both() float64 { return max(m.Beta, m.Both) }

// hidden is how much of the shorter one, moving or reducing, overlaps with the longer one, from 0 to 1. It is 1 where the network moves
// bytes while the core reduces, and 0 where the core does both.
func (m Machine) hidden() float64 {
	if m.both() == m.Beta {
		return 1
	}
	return max(0, 2-m.both()/m.Beta)
}

// queued is the share of Alpha that a message takes of its sender when it follows another at
// once: most of the latency of one hides behind that of the other.
const queued = 0.25

// posted is the latency of k messages that are posted at once.
func (m Machine) posted(k int) float64 { return m.Alpha * (1 + queued*float64(max(0, k-1))) }

// overlapped is the time to move n bytes, at beta each, and to reduce them as they arrive. The slower step counts in full. The faster one
// counts for the first bytes, which overlap with nothing, and for the part of the rest that does not overlap.
func (m Machine) overlapped(beta, n, first float64) float64 {
	exposed := n - m.hidden()*(n-first)
	return n*max(beta, m.Gamma) + exposed*min(beta, m.Gamma)
}

// reduced is the time of n bytes that take beta each to come, and are reduced segment by segment as they do.
func (m Machine) reduced(beta float64, n int) float64 {
	return m.overlapped(beta, float64(n), float64(min(n, segmentBytes)))
}

// thereAndBack is the time to send n bytes to a rank, which reduces them and returns the result, segment by segment. A segment returns
// while the next ones arrive.
func (m Machine) thereAndBack(n int) float64 {
	first := float64(min(n, segmentBytes))
	return first*(2*m.Beta+m.Gamma) + m.overlapped(m.both(), float64(n)-first, 0)
}

// incast is by how much bytes that come from several peers at once are slower than those of one: TCP's incast. Measured with 4 ranks on
// one machine, 64 KiB to 2 MiB: 1.1 to 1.25.
func incast(peers int) float64 { return 1 + 0.05*float64(min(peers-1, 4)) }

// returned is the time to get n bytes from each of peers ranks, reduce them, and give the result back to all, segment by
// segment: n is what one of them sends.
func (m Machine) returned(peers, n int) float64 {
	return 2*m.posted(peers) + m.overlapped(2*m.both()*incast(peers), float64(peers*n), float64(peers*min(n, segmentBytes)))
}

// others is the bytes of n that are not the own block's, where all blocks have the same length.
func others(size, n int) float64 { return float64(n) * float64(size-1) / float64(size) }

// ofBlocks is the time to move a block for each other rank, (p-1)/p n beta, and to copy the rank's own block, n/p gamma.
func (m Machine) ofBlocks(size, n int) float64 {
	return others(size, n)*m.both() + m.copied(float64(n)/float64(size))
}

// allAtOnce is the Cost of an algorithm that posts the messages to all p-1 other ranks at once.
func (m Machine) allAtOnce(size, n int) float64 { return m.posted(size-1) + m.ofBlocks(size, n) }

// byTree is the Cost of an algorithm with L = ceil(log2 p) rounds, where each round moves twice as many blocks as the one before. Its
// latency is L alpha.
func (m Machine) byTree(size, n int) float64 {
	return float64(levels(size))*m.Alpha + m.ofBlocks(size, n)
}

// rootAtOnce and rootByTree are the same costs where blocks go one way only: from root, or to it.
func (m Machine) rootAtOnce(size, n int) float64 { return m.oneWay().allAtOnce(size, n) }
func (m Machine) rootByTree(size, n int) float64 { return m.oneWay().byTree(size, n) }

// oneWay is m for algorithms in which no two ranks send to each other at once.
func (m Machine) oneWay() Machine {
	m.Both = m.Beta
	return m
}

// oneByOne is the Cost of an algorithm that exchanges blocks with one rank after another. Its latency is (p-1) alpha.
func (m Machine) oneByOne(size, n int) float64 {
	return float64(size-1)*m.Alpha + m.ofBlocks(size, n)
}

// pipelined is the Cost of m messages of s bytes that follow each other through depth links: the latencies of all but the first hide behind
// the one before.
func (m Machine) pipelined(depth, messages, s int, beta float64) float64 {
	return float64(depth)*m.Alpha + float64(messages-1)*queued*m.Alpha + float64((depth-1+messages)*s)*beta
}

// copied is the time to copy n bytes for the order's sake. Memory sets the pace of
// a copy as it does that of a reduction, so a byte is taken to cost the same.
func (m Machine) copied(n float64) float64 {
	return n * m.Gamma
}
