package algorithm

import "math/bits"

// queued is the share of Alpha that a message takes of its sender when it follows another at
// once: most of the latency of one hides behind that of the other.
const queued = 0.25

// posted is the latency of k messages that are posted at once.
func (m Machine) posted(k int) float64 { return m.Alpha * (1 + queued*float64(max(0, k-1))) }

// reduced is the time of n bytes that take beta each to come, and are reduced segment by
// segment as they do: the slower of both for all, and the faster one for one segment.
func (m Machine) reduced(beta float64, n int) float64 {
	return float64(n)*max(beta, m.Gamma) + float64(min(n, segmentBytes))*min(beta, m.Gamma)
}

// levels is ceil(log2 size), the height of a tree over the ranks.
func levels(size int) int { return bits.Len(uint(size - 1)) }

// powerOfTwo is the Fits of algorithms that know no other sizes.
func powerOfTwo(size int) bool { return size&(size-1) == 0 }

// crowd is by how much bytes that come from several peers at once are slower than those of one: TCP's incast. Measured with 4 ranks on
// one machine, 64 KiB to 2 MiB: 1.1 to 1.25.
func crowd(peers int) float64 { return 1 + 0.05*float64(min(peers-1, 4)) }

// returned is the time to get n bytes from each of peers ranks, reduce them, and give the result back to all, segment by
// segment: n is what one of them sends.
func (m Machine) returned(peers, n int) float64 {
	moved, first := float64(peers*n), float64(peers*min(n, segmentBytes))
	there, reduce := 2*m.Beta*crowd(peers), m.Gamma
	return 2*m.posted(peers) + moved*max(there, reduce) + first*min(there, reduce)
}
