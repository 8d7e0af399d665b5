package runview

import (
	"context"
	"time"

	"ddpbatch/internal/goodput"
	"ddpbatch/internal/rundir"
)

// AddGoodput has the row say where the run's time went, which takes a look at all its metrics, as far as accounts does not know them. Of a
// run whose files cannot be read the row says nothing of it.
func (row *RunStatus) AddGoodput(accounts *goodput.Accounts, now time.Time) {
	if b, err := accounts.Of(row.run, row.Ended, now); err == nil {
		row.Goodput = &b
	}
}

// EndedOf reports which of runs will not go on by themselves, by Slurm and what they have left. Of one that nothing can be told of it is
// false.
func (v *Viewer) EndedOf(ctx context.Context, runs []*rundir.Dir) ([]bool, error) {
	ended := make([]bool, len(runs))
	rows, err := v.Statuses(ctx, runs)
	for i, row := range rows {
		ended[i] = row.Failed == nil && row.Ended
	}
	return ended, err
}
