package algorithm

// broadcastStar sends from root to each other rank: the pattern of a parameter server. Its time grows with
// the number of ranks; it is here to be measured against.
func broadcastStar(p Port, buf []byte, root int) error {
	size := p.Size()
	if p.Rank() != root {
		return relay(p, buf, segmentBytes, branch{parent: root})
	}
	return relay(p, buf, segmentBytes, branch{none, size - 1, func(i int) int { return (root + 1 + i) % size }})
}

// costBroadcastStar is (p-1) n beta, and alpha for p-1 messages posted at once.
func costBroadcastStar(m Machine, size, n int) float64 {
	if size == 1 {
		return 0
	}
	return m.posted(size-1) + float64(size-1)*float64(n)*m.Beta
}
