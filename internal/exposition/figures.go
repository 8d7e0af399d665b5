package exposition

import (
	"time"

	"ddpbatch/internal/goodput"
	"ddpbatch/internal/rundir"
)

// figures are what is shown of a run at some time.
type figures struct {
	attempt  int               // the newest that has begun; 0: none has
	restarts int               // attempts that have begun, less the first
	newest   *rundir.Metrics   // nil: the run's metrics have no line with a step
	time     goodput.Breakdown // where the run's time went
}

// gathering takes the figures of one run again and again.
type gathering struct {
	run      *rundir.Dir
	accounts goodput.Accounts
}

func newGathering(run *rundir.Dir) *gathering { return &gathering{run: run} }

// at takes them at now. Of the metrics it reads what has come since the last time.
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
