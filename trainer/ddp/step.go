package ddp

import (
	"cmp"
	"context"
	"time"

	"ddpbatch/trainer/nn"
)

// step is what goes on between Begin and Finish. The goroutine of the caller counts gradients that are complete; the reducer, which is
// another one while they overlap, reduces the buckets that are full.
type step struct {
	open bool
	ctx  context.Context // of Begin: for as long as the step is open
	pass *nn.Pass        // of Backward; nil: there is none, see Shadow
	sums []float64       // the caller's
	head []float64       // the reducer's: the number of ranks that have input, and the sums

	left    []int   // gradients that are still incomplete, of each bucket
	sent    int     // buckets that the reducer was told of
	arrived []int32 // members in the order in which their gradients were complete, while that may change the buckets
	used    []uint8 // by member: whether it was used, here and then on any rank
	wrong   error   // what this rank has given the step up for

	full   chan struct{} // one for each bucket that is full, in order, and one for the end of Backward; closed: the step is given up
	done   chan error    // the reducer's end
	reduce func()        // starts the reducer: a value that is made once, so that a step allocates nothing
	ready  func(*nn.Param)
}

func (s *step) init(d *DDP) {
	s.reduce, s.ready = d.runReducer, d.ready
	s.done = make(chan error, 1)
	s.used = make([]uint8, len(d.members))
}

// resize makes room for n buckets. No step is open.
func (s *step) resize(n int) {
	s.left = make([]int, n)
	s.full = make(chan struct{}, n+1)
}

// Begin begins a synchronised step; it comes before Backward, which gets the same pass. Until Finish each bucket of gradients is averaged as
// soon as it is full, and pass.Ready and sums are the DDP's. sums is a few numbers, as many on every rank, that are added up over all
// ranks meanwhile. The step fails when ctx ends.
//
// A Backward outside of Begin and Finish only adds to this rank's gradients (PyTorch's no_sync); the next synchronised step averages
// all that has gathered.
//
// The second step's Begin moves the gradients, with what they hold, to other places: who keeps a Param.Grad must take it again.
func (d *DDP) Begin(ctx context.Context, pass *nn.Pass, sums []float64) {
	d.begin(ctx, pass, sums, true)
	if d.err == nil {
		pass.Ready = d.step.ready
	}
}

// begin is Begin for a rank that has input, or only goes along. Its Backward, if there is one, gets pass.
func (d *DDP) begin(ctx context.Context, pass *nn.Pass, sums []float64, active bool) {
	s := &d.step
	if s.open {
		panic("ddp: Begin without Finish")
	}
	if d.next != nil {
		d.rebuild() // here, where all ranks are: a layout is theirs together
	}
	s.open, s.ctx, s.pass, s.sums = true, ctx, pass, sums
	count := 0.0
	if active {
		count = 1
	}
	s.head = append(append(s.head[:0], count), sums...)
	s.sent, s.arrived = 0, s.arrived[:0]
	clear(s.left)
	for _, m := range d.members {
		m.left = m.uses
		s.left[m.bucket]++
	}
	d.stats = Stats{Communication: d.syncTime, Exposed: d.syncTime}
	d.syncTime = 0
	if d.cfg.Overlap && !d.idle() && d.err == nil {
		go s.reduce()
	}
}

// idle tells whether there is nothing to reduce.
func (d *DDP) idle() bool { return d.comm.Size() == 1 && d.cfg.Hook == nil }

// Finish ends a step, after Backward. It returns when the gradients are means over all ranks, with the same bits on every rank, and
// sums are sums. Nothing writes to the gradients any more then. An error, which all later calls return, too, means that the DDP and
// its Comm are broken on every rank; the gradients are zero then.
func (d *DDP) Finish() error {
	s := &d.step
	if !s.open {
		panic("ddp: Finish without Begin")
	}
	defer d.end()
	if d.err != nil {
		return d.err
	}
	began := time.Now()
	d.complete()
	err := d.wait()
	d.stats.Exposed += time.Since(began)
	if err != nil {
		return d.fail(err)
	}
	if d.active() > 0 {
		copy(s.sums, s.head[1:])
		d.markUsed()
		d.means = true
	}
	return nil
}

// end forgets what was the caller's.
func (d *DDP) end() {
	s := &d.step
	if s.pass != nil {
		s.pass.Ready = nil
	}
	s.open, s.ctx, s.pass, s.sums = false, nil, nil, nil
}

// wait returns when the reducer has ended.
func (d *DDP) wait() error {
	s := &d.step
	if d.idle() {
		s.drain()
		return cmp.Or(s.wrong, s.ctx.Err())
	}
	if !d.cfg.Overlap {
		s.reduce()
	}
	err := <-s.done
	s.drain() // where no rank had input
	return cmp.Or(s.wrong, err)
}

// drain takes back what the reducer was told, and did not want to know.
func (s *step) drain() {
	for s.wrong == nil && len(s.full) > 0 {
		<-s.full
	}
}

// giveUp has the step fail everywhere, for a reason that only this rank knows. It does not wait for its turn: the reducer may be in a
// collective, with a rank that comes late.
func (d *DDP) giveUp(reason error) {
	if s := &d.step; s.wrong == nil {
		s.wrong = reason
		d.breakComms(reason)
	}
}

// abandon ends an open step, and the DDP.
func (d *DDP) abandon(reason error) {
	s := &d.step
	d.giveUp(reason)
	close(s.full)
	if d.cfg.Overlap && !d.idle() {
		<-s.done
	}
	d.end()
	d.fail(s.wrong)
}
