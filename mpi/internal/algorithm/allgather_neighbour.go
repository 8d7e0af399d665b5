package algorithm

// even is the Fits of algorithms that pair the ranks.
func even(size int) bool { return size%2 == 0 || size == 1 }

// allGatherNeighbour is neighbour exchange: ranks pair up, alternately with the one and the other
// neighbour, and give what they got last. Two blocks go to and fro at a time, so that it takes half the rounds of
// a ring (Chen, Zhang, Zhang and Yuan 2005). Sizes are even.
func allGatherNeighbour(p Port, buf []byte, at []int) error {
	rank, size := p.Rank(), p.Size()
	if size == 1 {
		return nil
	}
	// Even ranks begin with the one to the right. The pairs of blocks that come from there
	// lie one further to the right each time, those from the left one further to the left.
	direction := 1
	if rank%2 == 1 {
		direction = -1
	}
	neighbours := [2]int{(rank + direction + size) % size, (rank - direction + size) % size}
	pair := rank &^ 1 // the first of the last two blocks that came
	latest := [2]int{pair, pair}
	turn := [2]int{2 * direction, -2 * direction}

	posted := p.Tickets(size)[:0]
	exchange := func(with int, out, in []byte) error {
		received := p.Recv(with, in)
		posted = append(posted, received, p.Send(with, out))
		return p.Wait(received)
	}
	first := neighbours[0]
	if err := exchange(first, buf[at[rank]:at[rank+1]], buf[at[first]:at[first+1]]); err != nil {
		return err
	}
	for i := 1; i < size/2; i++ {
		side := i % 2
		latest[side] = (latest[side] + turn[side] + size) % size
		come := latest[side]
		if err := exchange(neighbours[side], buf[at[pair]:at[pair+2]], buf[at[come]:at[come+2]]); err != nil {
			return err
		}
		pair = come
	}
	return WaitAll(p, posted...)
}

// costAllGatherNeighbour is p/2 alpha + (p-1)/p n beta.
func costAllGatherNeighbour(m Machine, size, n int) float64 {
	return float64(size/2)*m.Alpha + others(size, n)*m.Beta
}
