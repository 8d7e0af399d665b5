package checkpoint

import (
	"context"
	"fmt"

	"ddpbatch/checkpoint/internal/manifest"
)

// GivenUp says whether a later attempt of this run has gone on from before what an attempt saved at a step: a save that is not
// committed yet would be superseded at once.
func (d *Dir) GivenUp(attempt int, step int64) (bool, error) {
	_, files, err := d.names()
	if err != nil {
		return false, fmt.Errorf("look at the attempts in %s: %w", d.path, classify(err))
	}
	records, err := d.readLineage(context.Background(), files, false)
	if err != nil {
		return false, fmt.Errorf("look at the attempts in %s: %w", d.path, classify(err))
	}
	_, yes := manifest.Superseded(records.of(d.opt.Run), attempt, step, "")
	return yes, nil
}
