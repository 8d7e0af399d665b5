package algorithm

// ReduceFunc leaves the result in root's buf. The others' bufs are not changed.
type ReduceFunc func(p Port, buf []byte, root int, r Reduction) error

// Reduces are the algorithms of the reduction to one rank.
func Reduces() []Entry[ReduceFunc] {
	return []Entry[ReduceFunc]{
		{Traits{Code: 1, Name: "direct", Canonical: true, Cost: costReduceDirect}, reduceDirect},
		{Traits{Code: 2, Name: "binomial", Canonical: true, Cost: costReduceBinomial}, reduceBinomial},
		{Traits{Code: 3, Name: "scatter_gather", Canonical: true, Cost: costDirect}, reduceScattered},
	}
}

// reduceBinomial reduces along a binomial tree, in canonical order for every root.
func reduceBinomial(p Port, buf []byte, root int, r Reduction) error {
	if p.Size() == 1 {
		return nil
	}
	var room [maxLevels]child
	at := canonicalNode(p.Rank(), root, p.Size(), room[:])
	t := newTreeReduction(p, buf, r, at, r.segments(len(buf)), false)

	// Empty messages down the tree tell that the parents have come.
	presence := p.Handles(len(at.children) + 1)[:0]
	for _, child := range at.children {
		presence = append(presence, p.Send(child.rank, nil))
	}
	if at.parent != none {
		presence = append(presence, p.Recv(at.parent, nil))
	}
	if err := runTrees(&t); err != nil {
		return err
	}
	return WaitAll(p, presence...)
}

// costReduceBinomial is L(alpha + n beta + n gamma), the reduction overlapped.
func costReduceBinomial(m Machine, size, n int) float64 {
	return float64(levels(size)) * (m.Alpha + m.reduced(m.Beta, n))
}

// reduceDirect sends everything to root, which combines it in canonical order.
func reduceDirect(p Port, buf []byte, root int, r Reduction) error {
	presence := p.Handles(p.Size())[:0] // of empty messages that tell that root has come
	for rank := range p.Size() {
		switch {
		case rank == root:
		case p.Rank() == root:
			presence = append(presence, p.Send(rank, nil))
		case p.Rank() == rank:
			presence = append(presence, p.Recv(root, nil))
		}
	}
	if err := runStar(p, buf, r, root, false); err != nil {
		return err
	}
	return WaitAll(p, presence...)
}

// costReduceDirect is alpha + (p-1) n (beta + gamma), overlapped.
func costReduceDirect(m Machine, size, n int) float64 {
	share := float64(min(n, segmentBytes) * (size - 1))
	return m.posted(size-1) + float64(n*(size-1))*max(m.Beta, m.Gamma) + share*min(m.Beta, m.Gamma)
}

// starReduction is a reduction in which all ranks send everything to root, which combines it in rank order,
// segment by segment, and with back gives it to all.
type starReduction struct {
	Port
	r          Reduction
	buf        []byte
	root       int
	back       bool
	steps, lag int
	slots      slots
	toRoot     []Handle // root: of what comes from each rank; others: of what they send
	fromRoot   []Handle // root: of what goes back; others: of what comes back
	fold       fold
}

func runStar(p Port, buf []byte, r Reduction, root int, back bool) error {
	size := p.Size()
	if size == 1 {
		return nil
	}
	steps := r.segments(len(buf))
	lag := min(window, steps)
	s := starReduction{Port: p, r: r, buf: buf, root: root, back: back, steps: steps, lag: lag,
		toRoot: p.Handles(lag * size), fromRoot: p.Handles(lag * size), fold: fold{reduction: r}}
	if p.Rank() != root {
		return pipeline(steps, phase{0, s.send}, phase{lag, s.sent}, phase{2 * lag, s.finish})
	}
	s.slots = newSlots(p, r.widest(len(buf), steps), lag*size)
	return pipeline(steps, phase{0, s.collect}, phase{lag, s.reduce}, phase{2 * lag, s.finish})
}

func (s *starReduction) segment(k int) []byte { return s.r.part(s.buf, k, s.steps) }

// index is the position of rank's handle and slot in step k.
func (s *starReduction) index(k, rank int) int { return k%s.lag*s.Size() + rank }

func (s *starReduction) send(k int) error {
	s.toRoot[s.index(k, s.root)] = s.Send(s.root, s.segment(k))
	return nil
}

func (s *starReduction) sent(k int) error {
	err := s.Wait(s.toRoot[s.index(k, s.root)])
	if err == nil && s.back {
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
		if s.back && rank != s.root {
			s.fromRoot[s.index(k, rank)] = s.Send(rank, segment)
		}
	}
	return nil
}

// finish waits for what goes back.
func (s *starReduction) finish(k int) error {
	if !s.back {
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

// reduceScattered has every rank reduce a part of the buffer, in canonical order, and send it to root (Rabenseifner
// 2004, with direct messages), or to everyone. It goes segment by segment; ranks that get no result find their buffer unchanged.
// For large buffers: no rank moves more than the root's 2n bytes. Its cost is that of the all-reduce, too: root gets as much as there.
func reduceScattered(p Port, buf []byte, root int, r Reduction) error {
	size := p.Size()
	if size == 1 {
		return nil
	}
	block := r.widest(len(buf), size)
	steps := r.segments(block)
	lag := min(window, steps)
	d := directReduction{Port: p, r: r, buf: buf, root: root, steps: steps, lag: lag,
		slots:   newSlots(p, r.widest(block, steps), lag*size),
		handles: p.Handles(handleKinds * lag * size),
		fold:    fold{reduction: r}}
	return pipeline(steps, phase{0, d.scatter}, phase{lag, d.reduce}, phase{2 * lag, d.finish})
}

// everyone in place of a root: the result is for all ranks.
const everyone = -1

// directReduction is a reduction in which rank i reduces part i of the buffer. All ranks send it their
// part i, it combines them in rank order, and sends the result to root, or to everyone.
type directReduction struct {
	Port
	r          Reduction
	buf        []byte
	root       int
	steps, lag int
	slots      slots
	handles    []Handle
	fold       fold
}

// The handles of a step: for each rank, that of the part sent to it and received from it, and that of
// the result sent to it and received from it.
const (
	partSent = iota
	partReceived
	resultSent
	resultReceived
	handleKinds
)

func (d *directReduction) handle(kind, k, rank int) *Handle {
	return &d.handles[(kind*d.lag+k%d.lag)*d.Size()+rank]
}

// segment is segment k of the part of rank.
func (d *directReduction) segment(rank, k int) []byte {
	return d.r.part(d.r.part(d.buf, rank, d.Size()), k, d.steps)
}

// slot is where the segment k that rank sends is received. That of this rank itself is where the
// result is made that may not be made in buf.
func (d *directReduction) slot(rank, k int) []byte {
	return d.slots.at(k%d.lag*d.Size()+rank, len(d.segment(d.Rank(), k)))
}

// keeps tells whether the result is for rank.
func (d *directReduction) keeps(rank int) bool { return d.root == everyone || d.root == rank }

// peer is the i'th of the other ranks, starting with the next one, so that not all ranks begin with the same.
func (d *directReduction) peer(i int) int { return (d.Rank() + 1 + i) % d.Size() }

func (d *directReduction) scatter(k int) error {
	for i := range d.Size() - 1 {
		rank := d.peer(i)
		*d.handle(partSent, k, rank) = d.Send(rank, d.segment(rank, k))
		*d.handle(partReceived, k, rank) = d.Recv(rank, d.slot(rank, k))
	}
	return nil
}

func (d *directReduction) reduce(k int) error {
	me := d.Rank()
	home := d.slot(me, k)
	if d.keeps(me) {
		home = d.segment(me, k)
	}
	for i := range d.Size() - 1 {
		rank := d.peer(i)
		if err := d.Wait(*d.handle(partSent, k, rank)); err != nil {
			return err
		}
		if d.keeps(me) {
			*d.handle(resultReceived, k, rank) = d.Recv(rank, d.segment(rank, k))
		}
	}
	d.fold.begin(home)
	for rank := range d.Size() {
		if rank == me {
			d.fold.add(d.segment(me, k), true)
			continue
		}
		if err := d.Wait(*d.handle(partReceived, k, rank)); err != nil {
			return err
		}
		d.fold.add(d.slot(rank, k), false)
	}
	d.fold.end()
	for i := range d.Size() - 1 {
		if rank := d.peer(i); d.keeps(rank) {
			*d.handle(resultSent, k, rank) = d.Send(rank, home)
		}
	}
	return nil
}

func (d *directReduction) finish(k int) error {
	for i := range d.Size() - 1 {
		rank := d.peer(i)
		if d.keeps(d.Rank()) {
			if err := d.Wait(*d.handle(resultReceived, k, rank)); err != nil {
				return err
			}
		}
		if d.keeps(rank) {
			if err := d.Wait(*d.handle(resultSent, k, rank)); err != nil {
				return err
			}
		}
	}
	return nil
}
