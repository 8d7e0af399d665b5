package runview

import (
	"context"
	"time"

	"ddpbatch/internal/goodput"
	"ddpbatch/internal/rundir"
)

// AddGoodput adds to the row where the run's time went. It reads all of the run's metrics that accounts does not know yet. If the run's
// files cannot be read it adds nothing.
func (row *RunStatus) AddGoodput(accounts *goodput.Accounts, now time.Time) {
	if b, err := accounts.Of(row.run, row.Ended, now); err == nil {
		row.Goodput = &b
	}
}

// EndedOf reports which of runs will not continue by themselves, according to Slurm and their files. The answer is false if that is not
// known.
func (v *Viewer) EndedOf(ctx context.Context, runs []*rundir.Dir) ([]bool, error) {
	ended := make([]bool, len(runs))
	rows, err := v.Statuses(ctx, runs)
	for i, row := range rows {
		ended[i] = row.Failed == nil && row.Ended
	}
	return ended, err
}
