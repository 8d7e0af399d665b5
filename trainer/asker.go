package trainer

import (
	"context"
	"time"

	"ddpbatch/mpi"
)

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
