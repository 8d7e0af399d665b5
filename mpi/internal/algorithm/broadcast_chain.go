package algorithm

// broadcastChain passes segments along a chain of all ranks, which begins at root. Each link carries every byte
// once, and all links at once (Open MPI's pipeline; the chain of Pjesivac-Grbovic et al. 2007).
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

// costBroadcastChain is (p-2+m)(alpha + s beta) for m segments of s bytes.
func costBroadcastChain(m Machine, size, n int) float64 {
	if size == 1 {
		return 0
	}
	s := pipelineSegment(n, size-2)
	return float64(size-2+cuts(n, s)) * (m.Alpha + float64(min(n, s))*m.Beta)
}
