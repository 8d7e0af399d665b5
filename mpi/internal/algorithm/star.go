package algorithm

// starReduction is a reduction in which all ranks send their buffers to root. Root combines them in the order of ranks, segment by segment,
// and with returnResult sends the result to all.
type starReduction struct {
	Port
	r            Reduction
	buf          []byte
	root         int
	returnResult bool
	steps, lag   int
	slots        slots
	toRoot       []Handle // root: for the receives from each rank; other ranks: for what they send
	fromRoot     []Handle // root: for the result that it sends; other ranks: for the result that they receive
	fold         fold
}

func runStar(p Port, buf []byte, r Reduction, root int, returnResult bool) error {
	size := p.Size()
	if size == 1 {
		return nil
	}
	steps := r.segments(len(buf))
	lag := min(window, steps)
	s := starReduction{Port: p, r: r, buf: buf, root: root, returnResult: returnResult, steps: steps, lag: lag,
		toRoot: p.Handles(lag * size), fromRoot: p.Handles(lag * size), fold: fold{reduction: r}}
	if p.Rank() != root {
		return pipeline(steps, phase{0, s.send}, phase{lag, s.sent}, phase{2 * lag, s.finish})
	}
	s.slots = newSlots(p, r.widest(len(buf), steps), lag*size)
	return pipeline(steps, phase{0, s.collect}, phase{lag, s.reduce}, phase{2 * lag, s.finish})
}

func (s *starReduction) segment(k int) []byte { return s.r.part(s.buf, k, s.steps) }

// index returns the index of rank's handle and slot in step k.
func (s *starReduction) index(k, rank int) int { return k%s.lag*s.Size() + rank }

func (s *starReduction) send(k int) error {
	s.toRoot[s.index(k, s.root)] = s.Send(s.root, s.segment(k))
	return nil
}

func (s *starReduction) sent(k int) error {
	err := s.Wait(s.toRoot[s.index(k, s.root)])
	if err == nil && s.returnResult {
		s.fromRoot[s.index(k, s.root)] = s.Recv(s.root, s.segment(k))
	}
	return err
}

func (s *starReduction) collect(k int) error {
	for rank := range s.Size() {
		if i := s.index(k, rank); rank != s.root {
			s.toRoot[i] = s.Recv(rank, s.slots.at(i, len(s.segment(k))))
		}
	}
	return nil
}

func (s *starReduction) reduce(k int) error {
	segment := s.segment(k)
	s.fold.begin(segment)
	for rank := range s.Size() {
		if rank == s.root {
			s.fold.add(segment, true)
			continue
		}
		i := s.index(k, rank)
		if err := s.Wait(s.toRoot[i]); err != nil {
			return err
		}
		s.fold.add(s.slots.at(i, len(segment)), false)
	}
	s.fold.end()
	for rank := range s.Size() {
		if s.returnResult && rank != s.root {
			s.fromRoot[s.index(k, rank)] = s.Send(rank, segment)
		}
	}
	return nil
}

// finish waits for the result.
func (s *starReduction) finish(k int) error {
	if !s.returnResult {
		return nil
	}
	if s.Rank() != s.root {
		return s.Wait(s.fromRoot[s.index(k, s.root)])
	}
	for rank := range s.Size() {
		if rank == s.root {
			continue
		}
		if err := s.Wait(s.fromRoot[s.index(k, rank)]); err != nil {
			return err
		}
	}
	return nil
}
