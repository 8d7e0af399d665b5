package algorithm

// Entry is one algorithm of a collective, whose function has the type F.
//
// The entries of a collective are its table, which must not be changed. If costs are equal, the earlier entry is the better one. Entries
// that also take blocks of different lengths come first.
type Entry[F any] struct {
	Traits
	Run F
}

// Traits describes an algorithm.
type Traits struct {
	Code      uint8  // its number in the header of frames; part of the wire format
	Name      string // the name that users write
	Canonical bool   // for reductions: it keeps the canonical order. For other collectives: true, as they only move bytes

	// Fits reports whether a group of size ranks can use it. nil: any group can.
	Fits func(size int) bool

	// Cost returns the predicted time in seconds for size ranks, two or more, and a buffer of n bytes. The buffer is the whole vector of a
	// reduction or broadcast, all blocks of all ranks of a gather or scatter, or everything that one rank sends in an all-to-all.
	Cost func(m Machine, size, n int) float64
}

// TraitsOf returns the traits of the algorithms of a table.
func TraitsOf[F any](entries []Entry[F]) []Traits {
	all := make([]Traits, len(entries))
	for i := range entries {
		all[i] = entries[i].Traits
	}
	return all
}

// powerOfTwo is the Fits of algorithms that work only for powers of two.
func powerOfTwo(size int) bool { return size&(size-1) == 0 }

// even is the Fits of algorithms that pair the ranks.
func even(size int) bool { return size%2 == 0 || size == 1 }

// Machine has the parameters of the costs of algorithms: the model of Hockney (1994), with a term for the reduction. They are in seconds,
// and in seconds a byte.
type Machine struct {
	Alpha float64 // latency of a message
	Beta  float64 // time to transfer a byte
	Both  float64 // time to transfer a byte each way when two ranks send to each other; at most Beta if the directions share nothing
	Gamma float64 // time to reduce a byte
}

// both returns the time to transfer a byte each way. It is Beta on a network that is as fast with both directions in use. It is twice Beta
// if cores copy the bytes, because each core then copies what its rank sends and what it receives.
func (m Machine) both() float64 { return max(m.Beta, m.Both) }

// hidden returns how much of the shorter of two tasks, transferring and reducing, overlaps with the longer one, from 0 to 1. It is 1 if the
// network transfers bytes while the core reduces, and 0 if the core does both.
func (m Machine) hidden() float64 {
	if m.both() == m.Beta {
		return 1
	}
	return max(0, 2-m.both()/m.Beta)
}

// queued is the share of Alpha that a message costs its sender if it follows another message at once: most of the latency of the one
// overlaps with that of the other.
const queued = 0.25

// posted returns the latency of k messages that are posted at the same time.
func (m Machine) posted(k int) float64 { return m.Alpha * (1 + queued*float64(max(0, k-1))) }

// overlapped returns the time to transfer n bytes, at beta each, and to reduce them as they arrive. The slower task counts in full. The
// faster one counts for the first bytes, which overlap with nothing, and for the part of the rest that does not overlap.
func (m Machine) overlapped(beta, n, first float64) float64 {
	exposed := n - m.hidden()*(n-first)
	return n*max(beta, m.Gamma) + exposed*min(beta, m.Gamma)
}

// reduced returns the time for n bytes that take beta each to transfer, and are reduced segment by segment as they arrive.
func (m Machine) reduced(beta float64, n int) float64 {
	return m.overlapped(beta, float64(n), float64(min(n, segmentBytes)))
}

// roundTrip returns the time to send n bytes to a rank, which reduces them and returns the result, segment by segment. Segments return
// while the next ones arrive.
func (m Machine) roundTrip(n int) float64 {
	first := float64(min(n, segmentBytes))
	return first*(2*m.Beta+m.Gamma) + m.overlapped(m.both(), float64(n)-first, 0)
}

// incast returns how many times as long bytes take that come from several peers at the same time as those that come from one: TCP's incast.
// Measured with 4 ranks on one machine, 64 KiB to 2 MiB: 1.1 to 1.25.
func incast(peers int) float64 { return 1 + 0.05*float64(min(peers-1, 4)) }

// returned returns the time to receive n bytes from each of peers ranks, reduce them, and send the result back to all of them, segment by
// segment.
func (m Machine) returned(peers, n int) float64 {
	return 2*m.posted(peers) + m.overlapped(2*m.both()*incast(peers), float64(peers*n), float64(peers*min(n, segmentBytes)))
}

// others returns the number of bytes of n that are not the rank's own block, if all blocks have the same length.
func others(size, n int) float64 { return float64(n) * float64(size-1) / float64(size) }

// ofBlocks returns the time to transfer a block for each other rank, (p-1)/p n beta, and to copy the rank's own block, n/p gamma.
func (m Machine) ofBlocks(size, n int) float64 {
	return others(size, n)*m.both() + m.copied(float64(n)/float64(size))
}

// allAtOnce is the Cost of an algorithm that posts the messages to all p-1 other ranks at once.
func (m Machine) allAtOnce(size, n int) float64 { return m.posted(size-1) + m.ofBlocks(size, n) }

// byTree is the Cost of an algorithm with L = ceil(log2 p) rounds, each of which transfers twice as many blocks as the one before. Its
// latency is L alpha.
func (m Machine) byTree(size, n int) float64 {
	return float64(levels(size))*m.Alpha + m.ofBlocks(size, n)
}

// rootAtOnce and rootByTree are the same costs if blocks go only one way: from root, or to it.
func (m Machine) rootAtOnce(size, n int) float64 { return m.oneWay().allAtOnce(size, n) }
func (m Machine) rootByTree(size, n int) float64 { return m.oneWay().byTree(size, n) }

// oneWay returns m for algorithms in which no two ranks send to each other at the same time.
func (m Machine) oneWay() Machine {
	m.Both = m.Beta
	return m
}

// oneByOne is the Cost of an algorithm that exchanges blocks with one rank after another. Its latency is (p-1) alpha.
func (m Machine) oneByOne(size, n int) float64 {
	return float64(size-1)*m.Alpha + m.ofBlocks(size, n)
}

// pipelined is the Cost of m messages of s bytes that follow each other through depth links. The latencies of all but the first overlap
// with those before.
func (m Machine) pipelined(depth, messages, s int, beta float64) float64 {
	return float64(depth)*m.Alpha + float64(messages-1)*queued*m.Alpha + float64((depth-1+messages)*s)*beta
}

// copied returns the time to copy n bytes in order to arrange them. Memory limits the speed of a copy as it does that of a reduction, so a
// byte costs the same.
func (m Machine) copied(n float64) float64 {
	return n * m.Gamma
}
