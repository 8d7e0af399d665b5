package algorithm

// star is a reduction in which all ranks send everything to root, which combines it in rank order,
// segment by segment, and with back gives it to all.
type star struct {
	Port
	r          Reduction
	buf        []byte
	root       int
	back       bool
	steps, lag int
	slots      slots
	there      []Ticket // root: of what comes from each rank; others: of what they send
	andBack    []Ticket // root: of what goes back; others: of what comes back
	fold       fold
}

func runStar(p Port, buf []byte, r Reduction, root int, back bool) error {
	size := p.Size()
	if size == 1 {
		return nil
	}
	steps := r.segments(len(buf))
	lag := min(window, steps)
	s := star{Port: p, r: r, buf: buf, root: root, back: back, steps: steps, lag: lag,
		there: p.Tickets(lag * size), andBack: p.Tickets(lag * size), fold: fold{reduction: r}}
	if p.Rank() != root {
		return pipeline(steps, stage{0, s.give}, stage{lag, s.given}, stage{2 * lag, s.settle})
	}
	s.slots = newSlots(p, r.widest(len(buf), steps), lag*size)
	return pipeline(steps, stage{0, s.collect}, stage{lag, s.reduce}, stage{2 * lag, s.settle})
}

func (s *star) segment(k int) []byte { return s.r.part(s.buf, k, s.steps) }

// index is the place of rank's ticket and slot in step k.
func (s *star) index(k, rank int) int { return k%s.lag*s.Size() + rank }

func (s *star) give(k int) error {
	s.there[s.index(k, s.root)] = s.Send(s.root, s.segment(k))
	return nil
}

func (s *star) given(k int) error {
	err := s.Wait(s.there[s.index(k, s.root)])
	if err == nil && s.back {
		s.andBack[s.index(k, s.root)] = s.Recv(s.root, s.segment(k))
	}
	return err
}

func (s *star) collect(k int) error {
	for rank := range s.Size() {
		if i := s.index(k, rank); rank != s.root {
			s.there[i] = s.Recv(rank, s.slots.at(i, len(s.segment(k))))
		}
	}
	return nil
}

func (s *star) reduce(k int) error {
	segment := s.segment(k)
	s.fold.begin(segment)
	for rank := range s.Size() {
		if rank == s.root {
			s.fold.add(segment, true)
			continue
		}
		i := s.index(k, rank)
		if err := s.Wait(s.there[i]); err != nil {
			return err
		}
		s.fold.add(s.slots.at(i, len(segment)), false)
	}
	s.fold.end()
	for rank := range s.Size() {
		if s.back && rank != s.root {
			s.andBack[s.index(k, rank)] = s.Send(rank, segment)
		}
	}
	return nil
}

// settle waits for what goes back.
func (s *star) settle(k int) error {
	if !s.back {
		return nil
	}
	if s.Rank() != s.root {
		return s.Wait(s.andBack[s.index(k, s.root)])
	}
	for rank := range s.Size() {
		if rank == s.root {
			continue
		}
		if err := s.Wait(s.andBack[s.index(k, rank)]); err != nil {
			return err
		}
	}
	return nil
}
