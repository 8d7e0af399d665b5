package algorithm

// allReduceDirect is a direct reduce-scatter and all-gather: every rank owns a part of the buffer, and all messages
// go straight to the owners and back. It is as good as the ring in bandwidth, for any size, and its
// order is the canonical one.
func allReduceDirect(p Port, buf []byte, r Reduction) error { return runDirect(p, buf, r, everyone) }

// costDirect is 2(p-1) alpha + 2((p-1)/p) n beta + ((p-1)/p) n gamma, most of the latencies hidden behind
// each other and the reduction behind the transfer.
func costDirect(m Machine, size, n int) float64 {
	if size == 1 {
		return 0
	}
	return m.returned(size-1, n/size)
}
