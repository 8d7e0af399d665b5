package ddp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"ddpbatch/trainer/nn"
)

// syncStep is what goes on between Begin and Finish. The goroutine of the caller counts gradients that are complete; the reducer, which is
// another one while they overlap, reduces the buckets that are full.
type syncStep struct {
	open bool
	ctx  context.Context // of Begin: for as long as the step is open
	pass *nn.Pass        // of Backward
	sums []float64       // the caller's
	head []float64       // the same, which the reducer adds up over all ranks first

	left    []int   // gradients that are still incomplete, of each bucket
	sent    int     // buckets that the reducer was notified of
	arrived []int32 // members in the order in which their gradients were complete, while that may change the buckets
	used    []uint8 // by member: whether it was used, here and then on any rank
	wrong   error   // what this rank has given the step up for

	full   chan struct{} // one for each bucket that is full, in order, and one for the end of Backward; closed: the step is given up
	done   chan error    // the reducer's end
	reduce func()        // starts the reducer: a value that is made once, so that a step allocates nothing
	ready  func(*nn.Param)
}

func (s *syncStep) init(d *DDP) {
	s.reduce, s.ready = d.runReducer, d.ready
	s.done = make(chan error, 1)
	s.used = make([]uint8, len(d.members))
}

// resize makes room for n buckets. No step is open.
func (s *syncStep) resize(n int) {
	s.left = make([]int, n)
	s.full = make(chan struct{}, n+1)
}

// Begin begins a synchronized step; it comes before Backward, which gets the same pass. Until Finish each bucket of gradients is averaged
// as soon as it is full, and pass.Ready and sums are the DDP's. sums is a few numbers, as many on every rank, that are added up over all
// ranks meanwhile. The step fails when ctx ends.
//
// A Backward outside of Begin and Finish only adds to this rank's gradients (PyTorch's no_sync); the next synchronized step averages
// all that has gathered.
//
// The second step's Begin moves the gradients, with what they hold, elsewhere: who keeps a Param.Grad must take it again.
func (d *DDP) Begin(ctx context.Context, pass *nn.Pass, sums []float64) {
	s := &d.step
	if s.open {
		panic("ddp: Begin without Finish")
	}
	if d.nextOrder != nil {
		d.rebuild() // here, where all ranks are: buckets are theirs together
	}
	s.open, s.ctx, s.pass, s.sums = true, ctx, pass, sums
	s.head = append(s.head[:0], sums...)
	s.sent, s.arrived = 0, s.arrived[:0]
	clear(s.left)
	for _, m := range d.members {
		m.left = m.uses
		s.left[m.bucket]++
	}
	d.stats = Stats{Communication: d.syncTime, Exposed: d.syncTime}
	d.syncTime = 0
	if d.err != nil {
		return
	}
	pass.Ready = s.ready
	if d.cfg.Overlap && !d.idle() {
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
	copy(s.sums, s.head)
	d.markUsed()
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
	return cmp.Or(s.wrong, err)
}

// drain takes back the notifications that the reducer did not wait for.
func (s *syncStep) drain() {
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

// ready counts a gradient that is complete, and notifies the reducer of buckets that are full by it. Parameters that are not the
// DDP's are their owner's.
func (d *DDP) ready(p *nn.Param) {
	m := d.member[p]
	if m == nil {
		return
	}
	m.left--
	switch s := &d.step; {
	case m.left > 0:
	case m.left < 0:
		d.giveUp(fmt.Errorf("Backward has used %s more than %d times: New wants a parameter as often as the model uses it, "+
			"and a step has one Backward between Begin and Finish", p.Name, m.uses))
	default:
		if !d.orderFixed {
			s.arrived = append(s.arrived, int32(m.index))
		}
		s.left[m.bucket]--
		s.notifyReducer()
	}
}

// notifyReducer tells the reducer of what it may reduce by now: buckets go in order, as all ranks must reduce the same one.
func (s *syncStep) notifyReducer() {
	for s.sent < len(s.left) && s.left[s.sent] == 0 {
		s.full <- struct{}{}
		s.sent++
	}
}

// complete tells the reducer that Backward is over, and what is to become of gradients that it has not touched.
func (d *DDP) complete() {
	s := &d.step
	if b := d.cfg.SyncBatchNorm; b != nil && b.err != nil {
		d.giveUp(b.err)
	}
	if !d.cfg.FindUnused && s.sent < len(s.left) {
		d.giveUp(d.unused())
	}
	if s.wrong != nil {
		close(s.full)
		return
	}
	if d.cfg.FindUnused {
		for i, m := range d.members {
			s.used[i] = 0
			if m.param.HasGrad {
				s.used[i] = 1
			}
		}
	}
	clear(s.left)
	s.notifyReducer()
	s.full <- struct{}{}
}

// markUsed sets HasGrad where any rank has used a parameter, or where a Hook has added what it still owed: what it gives out once is
// gone from its residuals. Gradients of all others are zero.
func (d *DDP) markUsed() {
	for i, m := range d.members {
		p := m.param
		p.HasGrad = !d.cfg.FindUnused || d.step.used[i] > 0 || d.cfg.Hook != nil && slices.ContainsFunc(p.Grad, nonzero)
		if !p.HasGrad {
			clear(p.Grad)
		}
	}
}

func nonzero(g float32) bool { return g != 0 }

// unused words that parameters have got no gradient.
func (d *DDP) unused() error {
	var names []string
	for _, m := range d.members {
		switch {
		case m.left > 0 && m.left < m.uses:
			names = append(names, fmt.Sprintf("%s (%d times of %d)", m.param.Name, m.uses-m.left, m.uses))
		case m.left > 0:
			names = append(names, m.param.Name)
		}
	}
	const most = 5
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("Backward has not used %s on rank %d: have the loss depend on all parameters, leave those out that are not "+
		"trained, or allow it with FindUnused", strings.Join(names, ", "), d.comm.Rank())
}

// Stats is what a step has spent on communication. In both is the time that was spent on waiting for slower ranks.
type Stats struct {
	Communication time.Duration // in collectives of gradients and sums, whatever went on at the same time
	Exposed       time.Duration // in Finish, with nothing else going on
}

// Overlap is the share of the communication that took place while Backward went on, from 0 to 1.
func (s Stats) Overlap() float64 {
	if s.Communication <= 0 {
		return 0
	}
	return max(0, 1-float64(s.Exposed)/float64(s.Communication))
}

// Stats returns those of the last step. It is not collective.
func (d *DDP) Stats() Stats {
	if d.step.open {
		panic("ddp: Stats between Begin and Finish")
	}
	return d.stats
}
