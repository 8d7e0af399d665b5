package trainer

import (
	"context"
	"time"

	"ddpbatch/mpi"
)

// pace is how long a step takes: an exponentially weighted mean.
type pace struct{ mean time.Duration }

func (p *pace) add(step time.Duration) {
	const share = 8
	if p.mean == 0 {
		p.mean = step
	}
	p.mean += (step - p.mean) / share
}

// askedToStop reports whether this rank wants all ranks to stop. On rank 0 it also returns true if the deadline leaves too little time to
// continue until the next call, which is expected after untilNext, and to save then.
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

// addStopRequests adds to the sums whether this rank wants all to stop after this step, or to save quickly.
func (t *trainer) addStopRequests() {
	if t.askedToStop(t.untilNextStep()) {
		t.sums[stopSum] = 1
	}
	if t.needsQuickSave(t.pace.mean) {
		t.sums[quickSum] = 1
	}
}

// deadlineCheckEvery is how often rank 0 checks the deadline: a step may take far less.
const deadlineCheckEvery = 100 * time.Millisecond

// checkDeadline computes, on rank 0, the time to the deadline and the time that a save takes, unless it has just done so.
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

// untilNextStep returns how long it takes until a rank that is asked in a step is asked again: that step, or all steps until the ranks have
// the same parameters again, and a longer one; or the first round of an evaluation.
func (t *trainer) untilNextStep() time.Duration {
	steps := 2
	if t.average != nil {
		steps = max(steps, t.cfg.DDP.AverageEvery+1)
	}
	return time.Duration(steps)*t.pace.mean + t.evaluationRound
}

// timeToSave returns how long it takes from a stop until everything is saved: the save, and the one in the background, which goes first.
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

// needsQuickSave reports, on rank 0, whether the deadline may come before the end of a save of the usual kind that begins after the given
// time. Then all ranks save without encoding.
func (t *trainer) needsQuickSave(after time.Duration) bool {
	return t.saveTime > 0 && t.timeToDeadline < after+t.saveTime
}

// agreeOnQuickSave makes all ranks agree on whether a save that begins now must be quick, if no step has done so.
func (t *trainer) agreeOnQuickSave(ctx context.Context) (err error) {
	t.checkDeadline()
	t.quickSave, err = mpi.BroadcastObject(ctx, t.env.Comm, t.needsQuickSave(0), 0)
	return err
}

// quick reports whether a save that begins now must be quick. The ranks have agreed on it. Rank 0, whose decision is enough without a
// node-local disk, checks once more, because a save may follow long after a step.
func (t *trainer) quick() bool {
	t.checkDeadline()
	return t.quickSave || t.needsQuickSave(0)
}

// guessSave estimates how long a save may take if only the bytes of all ranks are known.
func guessSave(bytes float64) time.Duration {
	const least, perSecond = 5 * time.Second, 100e6
	return least + time.Duration(bytes/perSecond*float64(time.Second))
}

// stopPoll lets all ranks find out together, about once a second, whether one of them was asked to stop, and whether the next save
// must be quick. It is for work that takes longer than a step.
type stopPoll struct {
	trainer *trainer
	begun   time.Time
	next    int // the round after which the ranks ask
}

// pollEvery is how often the ranks ask, unless a round takes longer.
const pollEvery = time.Second

func (t *trainer) newStopPoll() stopPoll { return stopPoll{trainer: t, begun: t.now(), next: 1} }

// after must be called by all ranks after the same rounds, counted from 1.
func (p *stopPoll) after(ctx context.Context, round int) (stop bool, err error) {
	if round < p.next {
		return false, nil
	}
	const stopAt, timeAt, quickAt = 0, 1, 2
	took := p.trainer.now().Sub(p.begun) / time.Duration(round) // mean per round
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
