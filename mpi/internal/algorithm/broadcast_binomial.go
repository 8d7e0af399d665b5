package algorithm

// broadcastBinomial is the binomial tree: in each round every rank that has the buffer sends it
// to one that has not (Thakur, Rabenseifner and Gropp 2005, section 4.2).
func broadcastBinomial(p Port, buf []byte, root int) error {
	b := binomialOf(p, root)
	return relay(p, buf, segmentBytes, branch{b.parent(), b.children(), b.child})
}

// costBroadcastBinomial is L(alpha + n beta) with L = ceil(log2 p).
func costBroadcastBinomial(m Machine, size, n int) float64 {
	return float64(levels(size)) * (m.Alpha + float64(n)*m.Beta)
}
