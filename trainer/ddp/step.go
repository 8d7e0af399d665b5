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

// syncStep is the state between Begin and Finish. The caller's goroutine counts complete gradients; the reducer, which with overlap runs on
// another goroutine, reduces full buckets.
type syncStep struct {
	open bool
	ctx  context.Context // of Begin, while the step is open
	pass *nn.Pass        // of Backward
	sums []float64       // the caller's slice
	head []float64       // a copy of sums, which the reducer adds up over all ranks first

	left    []int   // number of incomplete gradients in each bucket
	sent    int     // number of buckets of which the reducer was notified
	arrived []int32 // members in the order in which their gradients were complete, while that may change the buckets
	used    []uint8 // by member: whether it was used, first on this rank and then on any
	wrong   error   // why this rank has given up the step

	full   chan struct{} // one value for each full bucket, in order, and one for the end of Backward; closed if the step is given up
	done   chan error    // the reducer's result
	reduce func()        // runReducer, as a value that is made once, so that a step does not allocate
	ready  func(*nn.Param)
}

func (s *syncStep) init(d *DDP) {
	s.reduce, s.ready = d.runReducer, d.ready
	s.done = make(chan error, 1)
	s.used = make([]uint8, len(d.members))
}

// resize makes room for n buckets. No step may be open.
func (s *syncStep) resize(n int) {
	s.left = make([]int, n)
	s.full = make(chan struct{}, n+1)
}

// Begin begins a synchronized step. It must be called before Backward, with the same pass. Until Finish each bucket of gradients is
// averaged as soon as it is full, and the DDP uses pass.Ready and sums. sums is a few numbers, the same count on every rank, that are added
// up over all ranks meanwhile. The step fails when ctx is done.
//
// A Backward outside of Begin and Finish only adds to this rank's gradients (PyTorch's no_sync); the next synchronized step averages
// what has accumulated.
//
// The second step's Begin moves the gradients, with their contents, to other memory: do not keep a Param.Grad across it.
func (d *DDP) Begin(ctx context.Context, pass *nn.Pass, sums []float64) {
	s := &d.step
	if s.open {
		panic("ddp: Begin without Finish")
	}
	if d.nextOrder != nil {
		d.rebuild() // here all ranks do it at the same point
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

// idle reports whether there is nothing to reduce.
func (d *DDP) idle() bool { return d.comm.Size() == 1 && d.cfg.Hook == nil }

// Finish ends a step, after Backward. When it returns nil, the gradients are means over all ranks, with the same bits on every rank, the
// sums have been added up, and nothing writes to the gradients any more. After an error, which all later calls return, too, the DDP and
// its Comm are broken on every rank, and the gradients are zero.
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

// end drops what belongs to the caller.
func (d *DDP) end() {
	s := &d.step
	if s.pass != nil {
		s.pass.Ready = nil
	}
	s.open, s.ctx, s.pass, s.sums = false, nil, nil, nil
}

// wait waits until the reducer has ended.
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

// drain discards ready-bucket notifications that the reducer never consumed.
func (s *syncStep) drain() {
	for s.wrong == nil && len(s.full) > 0 {
		<-s.full
	}
}

// giveUp makes the step fail on all ranks, for a reason that only this rank knows. It does not wait for its turn: the reducer may be in a
// collective, waiting for a slower rank.
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

// ready counts a complete gradient, and notifies the reducer of buckets that are full with it. It ignores parameters that are not the
// DDP's.
func (d *DDP) ready(p *nn.Param) {
	m := d.member[p]
	if m == nil {
		return
	}
	m.left--
	switch s := &d.step; {
	case m.left > 0:
	case m.left < 0:
		d.giveUp(fmt.Errorf("Backward has used %s more than %d times: list a parameter in New as often as the model uses it, "+
			"and call Backward once between Begin and Finish", p.Name, m.uses))
	default:
		if !d.orderFixed {
			s.arrived = append(s.arrived, int32(m.index))
		}
		s.left[m.bucket]--
		s.notifyReducer()
	}
}

// notifyReducer notifies the reducer of the buckets that it may reduce. They go in order, because all ranks must reduce the same one.
func (s *syncStep) notifyReducer() {
	for s.sent < len(s.left) && s.left[s.sent] == 0 {
		s.full <- struct{}{}
		s.sent++
	}
}

// complete notifies the reducer that Backward has ended, and decides about gradients that it has not computed.
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

// markUsed sets HasGrad if any rank has used a parameter, or if a Hook has added a residual, which is then gone from the
// residuals. The gradients of all other parameters are zero.
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

// unused returns an error that names the parameters without a gradient.
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
	return fmt.Errorf("Backward has not used %s on rank %d: make the loss depend on all parameters, call Done for each one in "+
		"the Backward of a module of your own, leave out those that are not trained, or allow it with FindUnused",
		strings.Join(names, ", "), d.comm.Rank())
}

// Stats is the time that a step has spent on communication. Both fields include waiting for slower ranks.
type Stats struct {
	Communication time.Duration // in collectives of gradients and sums, including the part that overlaps with Backward
	Exposed       time.Duration // in Finish, with nothing else in progress
}

// Overlap returns the share of the communication that took place during Backward, from 0 to 1.
func (s Stats) Overlap() float64 {
	if s.Communication <= 0 {
		return 0
	}
	return max(0, 1-float64(s.Exposed)/float64(s.Communication))
}

// Stats returns the statistics of the last step. It is not collective.
func (d *DDP) Stats() Stats {
	if d.step.open {
		panic("ddp: Stats between Begin and Finish")
	}
	return d.stats
}
