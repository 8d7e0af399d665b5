package ddp

import (
	"context"
	"fmt"
	"math"
	"time"

	"ddpbatch/mpi"
)

// SyncBuffers copies the buffers of rank 0 to all ranks. It must be called before Forward, once for each synchronized step. It does nothing
// if there are no buffers or Config.BroadcastBuffers is false. After an error the DDP is broken.
func (d *DDP) SyncBuffers(ctx context.Context) error {
	switch {
	case d.step.open:
		panic("ddp: SyncBuffers between Begin and Finish")
	case d.err != nil:
		return d.err
	case !d.cfg.BroadcastBuffers || len(d.packed) == 0 || d.comm.Size() == 1:
		return nil
	}
	began := time.Now()
	if err := d.broadcastBuffers(ctx); err != nil {
		return d.fail(fmt.Errorf("broadcast buffers: %w", err))
	}
	d.syncTime = time.Since(began)
	return nil
}

func (d *DDP) broadcastBuffers(ctx context.Context) error {
	rest := d.packed
	for _, b := range d.buffers {
		rest = rest[copy(rest, b.Value):]
	}
	if err := mpi.Broadcast(ctx, d.comm, d.packed, 0); err != nil {
		return err
	}
	rest = d.packed
	for _, b := range d.buffers {
		rest = rest[copy(b.Value, rest):]
	}
	return nil
}

// SyncBatchNorm sums the statistics of batch normalization over all ranks (PyTorch's SyncBatchNorm). It is the nn.Reducer of every such
// layer of a model. It is used on the goroutine of Forward and Backward, and each rank must call both in every step, even
// without rows. Config.SyncBatchNorm connects it with a DDP.
type SyncBatchNorm struct {
	ctx  context.Context
	comm *mpi.Comm
	err  error
}

// NewSyncBatchNorm is collective: it duplicates comm, so that its sums and the buckets of gradients, which
// are in progress at the same time, need no common order. All sums end when ctx is done.
func NewSyncBatchNorm(ctx context.Context, comm *mpi.Comm) (*SyncBatchNorm, error) {
	own, err := comm.Dup(ctx)
	if err != nil {
		return nil, fmt.Errorf("sync batch norm: %w", err)
	}
	return &SyncBatchNorm{ctx: ctx, comm: own}, nil
}

// Sum replaces x by its sum over all ranks. After an error, which Err returns, Sum sets x to NaN, in this and every later call, so that
// a caller that does not check Err gets no plausible result.
func (s *SyncBatchNorm) Sum(x []float64) {
	if s.err == nil {
		if err := mpi.AllReduce(s.ctx, s.comm, x, mpi.Sum); err != nil {
			s.err = fmt.Errorf("sync batch norm: %w", err)
		}
	}
	if s.err != nil {
		for i := range x {
			x[i] = math.NaN()
		}
	}
}

// Err returns the first error of Sum. Check it before using the results of a pass, unless a Finish has succeeded.
func (s *SyncBatchNorm) Err() error { return s.err }
