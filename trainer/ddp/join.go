package ddp

import (
	"context"
	"errors"
)

// Shadow is the step of a rank whose input has ended before that of others: it goes along with their SyncBuffers, Begin and Finish, with
// gradients that are zero. It returns how many ranks had input. Gradients and sums are then those of the others, this rank's sums
// added, and its optimizer is to take the same step as theirs. With 0, on all ranks at once, there was no step, and sums are as they were: the input
// of all has ended.
//
//	for {
//		if x, ok := next(); ok {
//			... // SyncBuffers, Forward, Begin, Backward, Finish
//		} else if active, err := d.Shadow(ctx, sums); active == 0 {
//			return err
//		}
//		optimizer.Step()
//	}
//
// It needs Config.Uneven, and that the others call SyncBuffers once for each Begin. (PyTorch's Join, whose ranks without input do
// not step, and get the last one's parameters at the end.)
func (d *DDP) Shadow(ctx context.Context, sums []float64) (active int, err error) {
	if d.cfg.Uneven == NotAllowed {
		return 0, d.fail(errors.New("a rank has no input left, while others may have: allow it with Uneven, or give all ranks as many rows"))
	}
	some, err := d.syncBuffers(ctx, false)
	if err != nil || !some {
		return 0, err
	}
	d.ZeroGrad()
	d.begin(ctx, nil, sums, false)
	if err := d.Finish(); err != nil {
		return 0, err
	}
	return int(d.active()), nil
}
