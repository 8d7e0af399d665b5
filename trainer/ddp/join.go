package ddp

import (
	"context"
	"errors"
	"slices"
)

var (
	errNoInput   = errors.New("a rank has no input left, while others may have: allow it with Uneven, or give all ranks as many rows")
	errNoZeroing = errors.New("Shadow finds the means of the last step in the gradients: call ZeroGrad after each step of ranks whose inputs are uneven")
)

// Shadow is the step of a rank whose input has ended before that of others: it goes along with their SyncBuffers, Begin and Finish, without
// Forward and Backward. It returns how many ranks had input. Gradients and sums are then those of the others, this rank's sums
// added, and its optimizer is to take the same step as theirs. With 0, on all ranks at once, there was no step, and sums are as they were: the input
// of all has ended.
//
//	for {
//		d.ZeroGrad()
//		if x, ok := next(); ok {
//			... // SyncBuffers, Forward, Begin, Backward, Finish
//		} else if active, err := d.Shadow(ctx, sums); active == 0 {
//			return err
//		}
//		optimizer.Step()
//	}
//
// What has gathered on this rank since ZeroGrad, in a Backward outside of Begin and Finish, goes into the means, and the
// rank counts as one that has input. The means of the last step must not: they are an error, as are ranks without input where
// Config.Uneven does not allow them; both break the DDP. The others call SyncBuffers once for each Begin.
//
// (PyTorch's Join, whose ranks without input do not step, and get the last one's parameters at the end.)
func (d *DDP) Shadow(ctx context.Context, sums []float64) (active int, err error) {
	switch {
	case d.step.open:
		panic("ddp: Shadow between Begin and Finish")
	case d.err != nil:
		return 0, d.err
	case d.cfg.Uneven == NotAllowed:
		return 0, d.fail(errNoInput)
	case d.means:
		return 0, d.fail(errNoZeroing)
	}
	gathered := slices.ContainsFunc(d.members, func(m *member) bool { return m.param.HasGrad })
	some, err := d.syncBuffers(ctx, gathered)
	if err != nil || !some {
		return 0, err
	}
	d.begin(ctx, nil, sums, gathered)
	if err := d.Finish(); err != nil {
		return 0, err
	}
	return int(d.active()), nil
}
