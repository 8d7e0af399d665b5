package algorithm

// reduceScattered makes every rank reduce a part of the buffer, in canonical order, and send it to root (Rabenseifner 2004, with direct
// messages) or to everyone. It works segment by segment. The buffers of ranks that get no result do not change. It is for large buffers: no
// rank transfers more than root, which transfers 2n bytes. The cost is that of the all-reduce, in which every rank transfers as much as
// root here.
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

// everyone stands for a root if the result is for all ranks.
const everyone = -1

// directReduction is a reduction in which rank i reduces part i of the buffer. It receives part i from all other ranks, combines the parts
// in the order of ranks, and sends the result to root or to everyone.
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

// The kinds of handles of a step. Each rank has one of each: for the part that is sent to it, for the part that is received from it, for
// the result that is sent to it and for the result that is received from it.
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

// segment returns segment k of the part of rank.
func (d *directReduction) segment(rank, k int) []byte {
	return d.r.part(d.r.part(d.buf, rank, d.Size()), k, d.steps)
}

// slot returns the memory for the segment k that rank sends. This rank's own slot is for a result that must not be in buf.
func (d *directReduction) slot(rank, k int) []byte {
	return d.slots.at(k%d.lag*d.Size()+rank, len(d.segment(d.Rank(), k)))
}

// keeps reports whether the result is for rank.
func (d *directReduction) keeps(rank int) bool { return d.root == everyone || d.root == rank }

// peer returns the i'th of the other ranks. It begins with the next rank, so that not all ranks begin with the same one.
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
