package exposition

import (
	"time"

	"ddpbatch/internal/goodput"
	"ddpbatch/internal/rundir"
)

// figures is what is shown about a run at some time.
type figures struct {
	attempt  int               // the newest attempt that has begun; 0: none
	restarts int               // the number of attempts that have begun, minus 1
	newest   *rundir.Metrics   // nil: the run's metrics have no line with a step
	time     goodput.Breakdown // where the run's time went
}

// gathering computes the figures of one run repeatedly.
type gathering struct {
	run      *rundir.Dir
	accounts goodput.Accounts
}

func newGathering(run *rundir.Dir) *gathering { return &gathering{run: run} }

// at computes the figures at now. It reads only the metrics that were written since the last call.
func (g *gathering) at(now time.Time) (f figures, err error) {
	events, err := g.run.Ledger()
	if err != nil {
		return f, err
	}
	begun := 0
	for _, e := range events {
		if e.Event == rundir.EventBegin {
			begun++
			f.attempt = max(f.attempt, e.Attempt)
		}
	}
	f.restarts = max(0, begun-1)
	m, ok, err := g.run.LastMetrics()
	if err != nil {
		return f, err
	}
	if ok {
		f.newest = &m
	}
	f.time, err = g.accounts.Of(g.run, false, now)
	return f, err
}
