package algorithm

// allReduceSwing is the bandwidth-optimal variant of Swing (De Sensi et al., NSDI 2024), for powers of two: halving and
// doubling where the peer of round s is |1-(-2)^(s+1)|/3 ranks away, in turn to one side and to the other.
// That keeps messages shorter on a torus. Its order is not canonical.
//
// The paper sends sets of blocks; here every round halves one contiguous range. Ranks which can still reach
// each other in later rounds keep the same half: the lower one if they include the lowest rank of both sides.
func allReduceSwing(p Port, buf []byte, r Reduction) error {
	var route [maxLevels]turn
	rounds := levels(p.Size())
	for s := range rounds {
		peer := swingPeer(p.Rank(), s, p.Size())
		route[s] = turn{peer: peer, upper: swingLowest(p.Rank(), s+1, p.Size()) > swingLowest(peer, s+1, p.Size())}
	}
	return halveAlong(p, buf, r, route[:rounds])
}

// swingPeer is whom rank meets in round s.
func swingPeer(rank, s, size int) int {
	distance, power := 0, 1
	for range s + 1 { // 1 - 2 + 4 - ..., which is (1-(-2)^(s+1))/3
		distance += power
		power *= -2
	}
	if rank%2 == 1 {
		distance = -distance
	}
	return (rank + distance) & (size - 1)
}

// swingLowest is the lowest rank that has to do with rank in the rounds from s on.
func swingLowest(rank, s, size int) int {
	if s >= levels(size) {
		return rank
	}
	return min(swingLowest(rank, s+1, size), swingLowest(swingPeer(rank, s, size), s+1, size))
}
