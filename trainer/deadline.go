package trainer

import "time"

// pace is how long a step takes: a mean in which the newest counts most.
type pace struct{ mean time.Duration }

func (p *pace) add(step time.Duration) {
	const share = 8
	if p.mean == 0 {
		p.mean = step
	}
	p.mean += (step - p.mean) / share
}

// askedToStop tells whether this rank wants all to stop. On rank 0 it also does where the deadline leaves no time to go on until it is asked
// again, which is thought to take so long, and to save then.
func (t *trainer) askedToStop(again time.Duration) bool {
	select {
	case <-t.env.Stop:
		return true
	default:
		return t.runsOut(again)
	}
}

// lookEvery is how often rank 0 compares the deadline with what is left: a step may take far less.
const lookEvery = 100 * time.Millisecond

func (t *trainer) runsOut(again time.Duration) bool {
	if t.saver == nil || t.env.Deadline.IsZero() || t.env.Comm.Rank() != 0 {
		return false
	}
	now := t.now()
	if t.hurried || now.Before(t.look) {
		return t.hurried
	}
	t.look = now.Add(lookEvery)
	left, lead := t.env.Deadline.Sub(now), again+t.lead()+lookEvery
	if t.hurried = left <= lead; t.hurried {
		t.log.Info("stopping in time to save before the deadline", "left", left, "needed", lead, "step", t.at.Step)
	}
	return t.hurried
}

// nextStep is how long it takes until a rank is asked again that is asked in a step: that step, or all until ranks have the same parameters
// again, and one that takes longer; or the first round of an evaluation.
func (t *trainer) nextStep() time.Duration {
	steps := 2
	if t.average != nil {
		steps = max(steps, t.cfg.DDP.AverageEvery+1)
	}
	return time.Duration(steps)*t.pace.mean + t.round
}

// lead is how long the ranks take from when they stop until all is saved: the save, and the one in the background, which goes first.
func (t *trainer) lead() time.Duration {
	save := t.saver.Estimate()
	if save == 0 {
		save = t.guess
	}
	if t.open && t.saver.Stats().Step < t.asked {
		save *= 2
	}
	return save
}

// inHaste tells, on rank 0, whether the deadline may come before a save of the usual kind is over: then it is written as it is.
func (t *trainer) inHaste() bool {
	return t.env.Comm.Rank() == 0 && !t.env.Deadline.IsZero() && t.env.Deadline.Sub(t.now()) < t.lead()
}

// guessSave is how long a save may take of which nothing is known but the bytes of all ranks.
func guessSave(bytes float64) time.Duration {
	const least, perSecond = 5 * time.Second, 100e6
	return least + time.Duration(bytes/perSecond*float64(time.Second))
}
