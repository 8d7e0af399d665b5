package algorithm

// everyone in place of a root: the result is for all ranks.
const everyone = -1

// direct is a reduction in which rank i reduces part i of the buffer. All ranks send it their
// part i, it combines them in rank order, and sends the result to root, or to everyone.
type direct struct {
	Port
	r          Reduction
	buf        []byte
	root       int
	steps, lag int
	slots      slots
	tickets    []Ticket
	fold       fold
}

// runDirect does a direct reduction, segment by segment. Ranks that get no result find
// their buffer unchanged.
func runDirect(p Port, buf []byte, r Reduction, root int) error {
	size := p.Size()
	if size == 1 {
		return nil
	}
	block := r.widest(len(buf), size)
	steps := r.segments(block)
	lag := min(window, steps)
	d := direct{Port: p, r: r, buf: buf, root: root, steps: steps, lag: lag,
		slots:   newSlots(p, r.widest(block, steps), lag*size),
		tickets: p.Tickets(ticketKinds * lag * size),
		fold:    fold{reduction: r}}
	return pipeline(steps, stage{0, d.scatter}, stage{lag, d.reduce}, stage{2 * lag, d.settle})
}

// The tickets of a step: for each rank, that of the part sent to it and received from it, and that of
// the result sent to it and received from it.
const (
	partSent = iota
	partReceived
	resultSent
	resultReceived
	ticketKinds
)

func (d *direct) ticket(kind, k, rank int) *Ticket {
	return &d.tickets[(kind*d.lag+k%d.lag)*d.Size()+rank]
}

// segment is segment k of the part of rank.
func (d *direct) segment(rank, k int) []byte {
	return d.r.part(d.r.part(d.buf, rank, d.Size()), k, d.steps)
}

// slot is where the segment k that rank sends is received. That of this rank itself is where the
// result is made that may not be made in buf.
func (d *direct) slot(rank, k int) []byte {
	return d.slots.at(k%d.lag*d.Size()+rank, len(d.segment(d.Rank(), k)))
}

// keeps tells whether the result is for rank.
func (d *direct) keeps(rank int) bool { return d.root == everyone || d.root == rank }

// peer is the i'th of the other ranks, starting with the next one, so that not all ranks begin with the same.
func (d *direct) peer(i int) int { return (d.Rank() + 1 + i) % d.Size() }

func (d *direct) scatter(k int) error {
	for i := range d.Size() - 1 {
		rank := d.peer(i)
		*d.ticket(partSent, k, rank) = d.Send(rank, d.segment(rank, k))
		*d.ticket(partReceived, k, rank) = d.Recv(rank, d.slot(rank, k))
	}
	return nil
}

func (d *direct) reduce(k int) error {
	me := d.Rank()
	home := d.slot(me, k)
	if d.keeps(me) {
		home = d.segment(me, k)
	}
	for i := range d.Size() - 1 {
		rank := d.peer(i)
		if err := d.Wait(*d.ticket(partSent, k, rank)); err != nil {
			return err
		}
		if d.keeps(me) {
			*d.ticket(resultReceived, k, rank) = d.Recv(rank, d.segment(rank, k))
		}
	}
	d.fold.begin(home)
	for rank := range d.Size() {
		if rank == me {
			d.fold.add(d.segment(me, k), true)
			continue
		}
		if err := d.Wait(*d.ticket(partReceived, k, rank)); err != nil {
			return err
		}
		d.fold.add(d.slot(rank, k), false)
	}
	d.fold.end()
	for i := range d.Size() - 1 {
		if rank := d.peer(i); d.keeps(rank) {
			*d.ticket(resultSent, k, rank) = d.Send(rank, home)
		}
	}
	return nil
}

func (d *direct) settle(k int) error {
	for i := range d.Size() - 1 {
		rank := d.peer(i)
		if d.keeps(d.Rank()) {
			if err := d.Wait(*d.ticket(resultReceived, k, rank)); err != nil {
				return err
			}
		}
		if d.keeps(rank) {
			if err := d.Wait(*d.ticket(resultSent, k, rank)); err != nil {
				return err
			}
		}
	}
	return nil
}
