package runview

import (
	"time"

	"ddpbatch/internal/goodput"
)

// AddGoodput has the row say where the run's time went, which takes a look at all its metrics. What has ended without a word is taken to have
// lived until its last sign. Of a run whose files cannot be read the row says nothing of it.
func (row *RunStatus) AddGoodput(now time.Time) {
	if row.Ended {
		if last, err := goodput.LastSign(row.run); err == nil && last.Before(now) && !last.IsZero() {
			now = last
		}
	}
	if b, err := goodput.Of(row.run, now); err == nil {
		row.Goodput = &b
	}
}
