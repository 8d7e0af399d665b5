package trainer

import (
	"context"
	"time"

	"ddpbatch/mpi"
)

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
	looked := t.lookAtDeadline()
	select {
	case <-t.env.Stop:
		return true
	default:
	}
	if lead := again + t.saving + lookEvery; looked && !t.hurried && t.left <= lead {
		t.hurried = true
		t.print("rank 0 | stopping in time to save before the deadline | step %d | %s left, %s needed\n", t.at.Step, timeText(t.left), timeText(lead))
	}
	return t.hurried
}

// ask puts what this rank wants of all ranks after this step into the sums.
func (t *trainer) ask() {
	if t.askedToStop(t.nextStep()) {
		t.sums[stopSum] = 1
	}
	if t.inHaste(t.pace.mean) {
		t.sums[hasteSum] = 1
	}
}

// lookEvery is how often rank 0 compares the deadline with what is left: a step may take far less.
const lookEvery = 100 * time.Millisecond

// lookAtDeadline finds out, on rank 0, how long it is until the deadline and how long a save takes, unless it has just done so.
func (t *trainer) lookAtDeadline() (looked bool) {
	if t.saver == nil || t.env.Deadline.IsZero() || t.env.Comm.Rank() != 0 {
		return false
	}
	now := t.now()
	if now.Before(t.look) {
		return false
	}
	t.look = now.Add(lookEvery)
	t.left, t.saving = t.env.Deadline.Sub(now), t.lead()
	return true
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

// inHaste tells, on rank 0, whether the deadline may come before a save of the usual kind is over that begins in so long: then it is written
// as it is, by all ranks.
func (t *trainer) inHaste(begins time.Duration) bool { return t.saving > 0 && t.left < begins+t.saving }

// agreeOnHaste tells all ranks whether a save that begins now is in haste, where no step has told them yet.
func (t *trainer) agreeOnHaste(ctx context.Context) (err error) {
	t.lookAtDeadline()
	t.haste, err = mpi.BroadcastObject(ctx, t.env.Comm, t.inHaste(0), 0)
	return err
}

// quick tells whether a save that begins now is to be written as it is. The ranks have agreed on it; rank 0, whose word is enough where there is no
// node-local disk, looks once more, as a save may follow long after a step.
func (t *trainer) quick() bool {
	t.lookAtDeadline()
	return t.haste || t.inHaste(0)
}

// guessSave is how long a save may take of which nothing is known but the bytes of all ranks.
func guessSave(bytes float64) time.Duration {
	const least, perSecond = 5 * time.Second, 100e6
	return least + time.Duration(bytes/perSecond*float64(time.Second))
}

// asker has all ranks find out together, about once a second, whether one of them was asked to stop, and whether the save that follows is in
// haste: in what takes longer than a step.
type asker struct {
	t     *trainer
	begun time.Time
	next  int // the round after which they ask
}

// askEvery is how often they ask, unless a round takes longer.
const askEvery = time.Second

func (t *trainer) newAsker() asker { return asker{t: t, begun: t.now(), next: 1} }

// after is called by all ranks after the same rounds, counted from 1.
func (a *asker) after(ctx context.Context, round int) (stop bool, err error) {
	if round < a.next {
		return false, nil
	}
	const stopAt, timeAt, hasteAt = 0, 1, 2
	took := a.t.now().Sub(a.begun) / time.Duration(round) // by a round
	a.t.round = took
	most := []float64{timeAt: took.Seconds(), hasteAt: 0}
	if a.t.askedToStop(max(askEvery, took) + took) {
		most[stopAt] = 1
	}
	if a.t.inHaste(took) {
		most[hasteAt] = 1
	}
	if err := mpi.AllReduce(ctx, a.t.env.Comm, most, mpi.Max); err != nil {
		return false, err
	}
	const rarest = 1 << 16
	a.next = round + int(min(rarest, max(1, askEvery.Seconds()/max(1e-9, most[timeAt]))))
	a.t.haste = most[hasteAt] > 0
	return most[stopAt] > 0, nil
}
