package algorithm

// allReduceStar is the parameter server: rank 0 gets every rank's buffer, combines them in canonical order, and sends
// the result back. All the traffic goes through one rank: it is here to be compared with.
func allReduceStar(p Port, buf []byte, r Reduction) error { return runStar(p, buf, r, 0, true) }

// costStar is 2(p-1) alpha + 2(p-1) n beta + (p-1) n gamma. With many segments, reduction and both ways overlap.
func costStar(m Machine, size, n int) float64 {
	if size == 1 {
		return 0
	}
	first := float64(min(n, segmentBytes))
	return 2*m.posted(size-1) + float64(size-1)*(m.reduced(m.Beta, n)+first*m.Beta)
}
