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

// askedToStop tells whether this rank wants all to stop. On rank 0 it also does where the deadline leaves no time to go on until the
// next call, which is expected after untilNext, and to save then.
func (t *trainer) askedToStop(untilNext time.Duration) bool {
	looked := t.checkDeadline()
	select {
	case <-t.env.Stop:
		return true
	default:
	}
	if needed := untilNext + t.saveTime + deadlineCheckEvery; looked && !t.outOfTime && t.timeToDeadline <= needed {
		t.outOfTime = true
		t.print("rank 0 | stopping in time to save before the deadline | step %d | %s left, %s needed\n",
			t.at.Step, timeText(t.timeToDeadline), timeText(needed))
	}
	return t.outOfTime
}

// addStopRequests puts what this rank wants of all ranks after this step into the sums.
func (t *trainer) addStopRequests() {
	if t.askedToStop(t.untilNextStep()) {
		t.sums[stopSum] = 1
	}
	if t.needsQuickSave(t.pace.mean) {
		t.sums[quickSum] = 1
	}
}

// deadlineCheckEvery is how often rank 0 compares the deadline with what is left: a step may take far less.
const deadlineCheckEvery = 100 * time.Millisecond

// checkDeadline finds out, on rank 0, how long it is until the deadline and how long a save takes, unless it has just done so.
func (t *trainer) checkDeadline() (looked bool) {
	if t.saver == nil || t.env.Deadline.IsZero() || t.env.Comm.Rank() != 0 {
		return false
	}
	now := t.now()
	if now.Before(t.nextDeadlineCheck) {
		return false
	}
	t.nextDeadlineCheck = now.Add(deadlineCheckEvery)
	t.timeToDeadline, t.saveTime = t.env.Deadline.Sub(now), t.timeToSave()
	return true
}

// untilNextStep is how long it takes until a rank is asked again that is asked in a step: that step, or all until ranks have the same
// parameters again, and one that takes longer; or the first round of an evaluation.
func (t *trainer) untilNextStep() time.Duration {
	steps := 2
	if t.average != nil {
		steps = max(steps, t.cfg.DDP.AverageEvery+1)
	}
	return time.Duration(steps)*t.pace.mean + t.evaluationRound
}

// timeToSave is how long the ranks take from when they stop until all is saved: the save, and the one in the background, which goes first.
func (t *trainer) timeToSave() time.Duration {
	save := t.saver.Estimate()
	if save == 0 {
		save = t.guessedSaveTime
	}
	if t.uncommitted && t.saver.Stats().Step < t.begunStep {
		save *= 2
	}
	return save
}

// needsQuickSave tells, on rank 0, whether the deadline may come before a save of the usual kind is over that begins after so long: then
// it is written as it is, by all ranks.
func (t *trainer) needsQuickSave(after time.Duration) bool {
	return t.saveTime > 0 && t.timeToDeadline < after+t.saveTime
}

// agreeOnQuickSave has all ranks agree on whether a save that begins now must be quick, where no step has done so.
func (t *trainer) agreeOnQuickSave(ctx context.Context) (err error) {
	t.checkDeadline()
	t.quickSave, err = mpi.BroadcastObject(ctx, t.env.Comm, t.needsQuickSave(0), 0)
	return err
}

// quick tells whether a save that begins now is to be written as it is. The ranks have agreed on it; rank 0, whose word is enough where
// there is no node-local disk, looks once more, as a save may follow long after a step.
func (t *trainer) quick() bool {
	t.checkDeadline()
	return t.quickSave || t.needsQuickSave(0)
}

// guessSave is how long a save may take of which nothing is known but the bytes of all ranks.
func guessSave(bytes float64) time.Duration {
	const least, perSecond = 5 * time.Second, 100e6
	return least + time.Duration(bytes/perSecond*float64(time.Second))
}

// stopPoll has all ranks find out together, about once a second, whether one of them was asked to stop, and whether the save that follows
// must be quick: in what takes longer than a step.
type stopPoll struct {
	trainer *trainer
	begun   time.Time
	next    int // the round after which they ask
}

// pollEvery is how often they ask, unless a round takes longer.
const pollEvery = time.Second

func (t *trainer) newStopPoll() stopPoll { return stopPoll{trainer: t, begun: t.now(), next: 1} }

// after is called by all ranks after the same rounds, counted from 1.
func (p *stopPoll) after(ctx context.Context, round int) (stop bool, err error) {
	if round < p.next {
		return false, nil
	}
	const stopAt, timeAt, quickAt = 0, 1, 2
	took := p.trainer.now().Sub(p.begun) / time.Duration(round) // by a round
	p.trainer.evaluationRound = took
	most := []float64{timeAt: took.Seconds(), quickAt: 0}
	if p.trainer.askedToStop(max(pollEvery, took) + took) {
		most[stopAt] = 1
	}
	if p.trainer.needsQuickSave(took) {
		most[quickAt] = 1
	}
	if err := mpi.AllReduce(ctx, p.trainer.env.Comm, most, mpi.Max); err != nil {
		return false, err
	}
	const rarest = 1 << 16
	p.next = round + int(min(rarest, max(1, pollEvery.Seconds()/max(1e-9, most[timeAt]))))
	p.trainer.quickSave = most[quickAt] > 0
	return most[stopAt] > 0, nil
}
