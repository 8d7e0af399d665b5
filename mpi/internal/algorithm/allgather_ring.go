package algorithm

// allGatherRing passes blocks around the ring, each segment as soon as it has come: so long blocks among short
// ones hold nobody up (Thakur, Rabenseifner and Gropp 2005, section 4.1).
func allGatherRing(p Port, buf []byte, at []int) error {
	rank, size := p.Rank(), p.Size()
	return circulate(p, ring{rank, (rank + 1) % size, (rank - 1 + size) % size},
		func(i int) []byte { return buf[at[i]:at[i+1]] })
}

// costAllGatherRing is (p-1) alpha + (p-1)/p n beta.
func costAllGatherRing(m Machine, size, n int) float64 {
	return float64(size-1)*m.Alpha + others(size, n)*m.Beta
}

// ring is a rank's place in a ring, and the ranks that it sends to and hears from.
type ring struct{ place, right, left int }

// circulate gives each rank the blocks of all places.
func circulate(p Port, r ring, block func(place int) []byte) error {
	size := p.Size()
	from := func(step int) []byte { return block((r.place - step + size) % size) }

	room := 0
	for step := range size {
		room += cuts(len(from(step)), segmentBytes)
	}
	posted := p.Tickets(2 * room)[:0]
	for step := 1; step < size; step++ {
		b := from(step)
		for i := range cuts(len(b), segmentBytes) {
			posted = append(posted, p.Recv(r.left, cut(b, segmentBytes, i)))
		}
	}
	next := 0
	for step := range size - 1 {
		b := from(step)
		for i := range cuts(len(b), segmentBytes) {
			if step > 0 {
				if err := p.Wait(posted[next]); err != nil {
					return err
				}
				next++
			}
			posted = append(posted, p.Send(r.right, cut(b, segmentBytes, i)))
		}
	}
	return WaitAll(p, posted...)
}
