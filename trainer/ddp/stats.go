package ddp

import "time"

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
