package ddp

import (
	"context"
	"crypto/sha256"
	"fmt"

	"ddpbatch/mpi"
)

// Averager averages arrays over ranks that train independently in between (local SGD, arXiv 1808.07217), by the rule of
// PyTorch's PeriodicModelAverager.
type Averager struct {
	comm           *mpi.Comm
	arrays         [][]float32
	period, warmup int64
	buffer         []float32
}

// averageLength is how many elements are averaged at a time: enough for bandwidth to limit the all-reduce.
const averageLength = 1 << 20

// NewAverager returns an Averager of arrays: the values of the parameters, and those parts of the optimizer's state that must be equal on
// all ranks. They are averaged after step warmup, counted from 0, and every period steps from there. Lengths, period and warmup must be the
// same on all ranks, or all ranks get an error.
func NewAverager(ctx context.Context, comm *mpi.Comm, arrays [][]float32, period, warmup int64) (*Averager, error) {
	var wrong error
	switch {
	case period < 1:
		wrong = fmt.Errorf("average: the period is %d steps, want at least 1", period)
	case warmup < 0:
		wrong = fmt.Errorf("average: the warm-up is %d steps, want 0 or more", warmup)
	}
	if err := mpi.Agree(ctx, comm, wrong); err != nil {
		return nil, err
	}
	n := 0
	lengths := make([]int, len(arrays))
	for i, x := range arrays {
		lengths[i] = len(x)
		n += len(x)
	}
	digest := sha256.Sum256(fmt.Append(nil, period, warmup, lengths))
	if err := CompareDigests(ctx, comm, "averaging, its period, its warm-up or what is averaged", digest); err != nil {
		return nil, err
	}
	buffer, err := mpi.Alloc[float32](ctx, comm, min(n, averageLength))
	if err != nil {
		return nil, fmt.Errorf("average: allocate: %w", err)
	}
	return &Averager{comm: comm, arrays: arrays, period: period, warmup: warmup, buffer: buffer}, nil
}

// Due reports whether arrays are averaged after a step, counted from 0.
func (a *Averager) Due(step int64) bool {
	return step >= a.warmup && (step-a.warmup)%a.period == 0
}

// Average replaces each array by its mean over all ranks: the sum in float32, divided, with the same bits on each rank. It is collective.
func (a *Averager) Average(ctx context.Context) error {
	filled, first, offset := 0, 0, 0 // the contents of buffer begin at offset in arrays[first]
	for i, x := range a.arrays {
		for at := 0; at < len(x); {
			n := copy(a.buffer[filled:], x[at:])
			filled, at = filled+n, at+n
			if filled < len(a.buffer) {
				continue
			}
			if err := a.exchange(ctx, filled, first, offset); err != nil {
				return err
			}
			filled, first, offset = 0, i, at
		}
	}
	return a.exchange(ctx, filled, first, offset)
}

// exchange averages the first n elements of buffer, and copies them back.
func (a *Averager) exchange(ctx context.Context, n, first, offset int) error {
	if n == 0 {
		return nil
	}
	rest := a.buffer[:n]
	if err := mpi.AllReduce(ctx, a.comm, rest, mpi.Avg); err != nil {
		return fmt.Errorf("average the parameters over ranks: %w", err)
	}
	for i := first; len(rest) > 0; i++ {
		rest = rest[copy(a.arrays[i][offset:], rest):]
		offset = 0
	}
	return nil
}
