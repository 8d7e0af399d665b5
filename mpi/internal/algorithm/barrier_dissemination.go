package algorithm

// barrierDissemination tells the rank 2^k after, in round k, that this one and all that it has
// heard of are there (Hensgen, Finkel and Manber 1988).
func barrierDissemination(p Port) error {
	rank, size := p.Rank(), p.Size()
	for distance := 1; distance < size; distance *= 2 {
		err := WaitAll(p, p.Recv((rank-distance+size)%size, nil), p.Send((rank+distance)%size, nil))
		if err != nil {
			return err
		}
	}
	return nil
}

// costBarrierDissemination is L alpha with L = ceil(log2 p).
func costBarrierDissemination(m Machine, size, _ int) float64 { return float64(levels(size)) * m.Alpha }
