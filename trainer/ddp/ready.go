package ddp

import (
	"fmt"
	"slices"
	"strings"

	"ddpbatch/trainer/nn"
)

// ready counts a gradient that is complete, and tells the reducer of buckets that are full by it. Parameters that are not the
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
		if !d.settled {
			s.arrived = append(s.arrived, int32(m.index))
		}
		s.left[m.bucket]--
		s.tell()
	}
}

// tell tells the reducer of what it may reduce by now: buckets go in order, as all ranks must reduce the same one.
func (s *step) tell() {
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
	if s.pass != nil && !d.cfg.FindUnused && s.sent < len(s.left) {
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
	s.tell()
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
	const enough = 5
	if more := len(names) - enough; more > 0 {
		names = append(names[:enough], fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("Backward has not used %s on rank %d: have the loss depend on all parameters, leave those out that are not "+
		"trained, or allow it with FindUnused", strings.Join(names, ", "), d.comm.Rank())
}
