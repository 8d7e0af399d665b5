package algorithm

// BarrierFunc returns when every rank has called it.
type BarrierFunc func(p Port) error

// Barriers are the algorithms of a barrier.
func Barriers() []Entry[BarrierFunc] {
	return []Entry[BarrierFunc]{
		{Traits{Code: 1, Name: "dissemination", Canonical: true, Cost: costBarrierDissemination}, barrierDissemination},
		{Traits{Code: 2, Name: "binomial", Canonical: true, Cost: costBarrierBinomial}, barrierBinomial},
		{Traits{Code: 3, Name: "star", Canonical: true, Cost: costBarrierStar}, barrierStar},
	}
}

// barrierDissemination sends a message to the rank 2^k after this one in round k. It says that this rank and all that it has heard of have
// made the call (Hensgen, Finkel and Manber 1988).
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

// barrierBinomial collects messages up the binomial tree of rank 0 until all ranks have made the call, and sends messages down again. It
// takes twice as long as dissemination, but with fewer messages in large groups: 3 (p-1) of them.
func barrierBinomial(p Port) error {
	b := binomialOf(p, 0)
	return upAndDown(p, b.parent(), b.children(), b.child)
}

// costBarrierBinomial is 2 L alpha with L = ceil(log2 p).
func costBarrierBinomial(m Machine, size, _ int) float64 { return 2 * float64(levels(size)) * m.Alpha }

// barrierStar is the same with a tree of height 1: rank 0 receives a message from all, and then sends one to all.
func barrierStar(p Port) error {
	if p.Rank() > 0 {
		return upAndDown(p, 0, 0, nil)
	}
	return upAndDown(p, none, p.Size()-1, func(i int) int { return i + 1 })
}

// costBarrierStar is twice the cost of p-1 messages posted at the same time.
func costBarrierStar(m Machine, size, _ int) float64 {
	return 2 * m.posted(size-1)
}

// upAndDown returns when all ranks of a tree have called it. First, each rank sends its children a message (see the package's rule). Then
// it receives one from each of them, and sends one to its parent. After that, messages go the other way.
func upAndDown(p Port, parent, children int, child func(i int) int) error {
	posted := p.Handles(3*children + 3)[:0]
	for i := range children {
		posted = append(posted, p.Recv(child(i), nil), p.Send(child(i), nil))
	}
	if err := WaitAll(p, posted...); err != nil {
		return err
	}
	if parent != none {
		presence, release := p.Recv(parent, nil), p.Recv(parent, nil)
		posted = append(posted, presence, release, p.Send(parent, nil))
		if err := WaitAll(p, presence, release); err != nil {
			return err
		}
	}
	for i := range children {
		posted = append(posted, p.Send(child(i), nil))
	}
	return WaitAll(p, posted...)
}
