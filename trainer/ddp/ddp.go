package ddp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

var errClosed = errors.New("the DDP is closed")

// DDP is one rank's replica of a model. It is used by one goroutine at a time.
type DDP struct {
	comm    *mpi.Comm
	cfg     Config
	members []*member // in the order of the model
	member  map[*nn.Param]*member

	buffers  []*nn.Buffer
	packed   []float32 // the values of all buffers
	syncTime time.Duration

	arena       []float32 // all gradients
	buckets     []*Bucket
	order       []int32 // of the gradients in the arena: indices in members
	nextOrder   []int32 // the order from the next step on; nil: no change
	orderFixed  bool    // order will not change any more
	hookUnbound bool    // the Hook has not been bound to the buckets yet

	step  syncStep
	stats Stats
	err   error // the error that has ended it
}

// member is a parameter and where it is in the buckets.
type member struct {
	param  *nn.Param
	index  int // in DDP.members
	uses   int // how often the model lists it: its gradient is complete after that many calls of Pass.Done
	left   int // how many of these calls are missing in this step
	bucket int
}

// New wraps a model, given as its parameters and buffers, whose names must be unique. It returns an error, on every rank, unless
// all ranks have the same names and shapes in the same order, and the same cfg. It then copies rank 0's values to all ranks, and moves the
// gradients into memory of the Comm, where they stay, all zero at first, until Close.
//
// The gradient of a parameter that is listed several times is complete after that many calls of Pass.Done for it.
func New(ctx context.Context, comm *mpi.Comm, params []*nn.Param, buffers []*nn.Buffer, cfg Config) (*DDP, error) {
	d := &DDP{comm: comm, cfg: cfg, member: map[*nn.Param]*member{}, buffers: buffers}
	if err := d.wrap(ctx, params); err != nil {
		if comm.Err() != nil {
			d.breakComms(err) // ranks that have not learned of the failure may be waiting in a sum
		}
		return nil, err
	}
	return d, nil
}

// wrap does the work of New, except for what follows a failure.
func (d *DDP) wrap(ctx context.Context, params []*nn.Param) error {
	if err := mpi.Agree(ctx, d.comm, cmp.Or(d.cfg.validate(), checkTensors(params, d.buffers))); err != nil {
		return err
	}
	d.cfg = d.cfg.complete()
	for _, p := range params {
		m := d.member[p]
		if m == nil {
			m = &member{param: p, index: len(d.members)}
			d.member[p] = m
			d.members = append(d.members, m)
		}
		m.uses++
	}
	if err := agreeOn(ctx, d.comm, describe(slices.Collect(nn.Distinct(params)), d.buffers, d.cfg)); err != nil {
		return err
	}
	if err := d.broadcastValues(ctx); err != nil {
		return fmt.Errorf("broadcast rank 0's parameters and buffers: %w", err)
	}
	d.firstOrder()
	d.step.init(d)
	return d.takeGradients(ctx)
}

func (d *DDP) broadcastValues(ctx context.Context) error {
	var values [][]float32
	for _, m := range d.members {
		values = append(values, m.param.Value)
	}
	n := 0
	for _, b := range d.buffers {
		values = append(values, b.Value)
		n += len(b.Value)
	}
	d.packed = make([]float32, n)
	return mpi.BroadcastMany(ctx, d.comm, values, 0)
}

// ZeroGrad sets all gradients of this rank to zero and marks them as unused. It is not collective.
func (d *DDP) ZeroGrad() {
	if d.step.open {
		panic("ddp: ZeroGrad between Begin and Finish")
	}
	for _, m := range d.members {
		clear(m.param.Grad)
		m.param.HasGrad = false
	}
}

// Close gives the parameters gradients of their own, all zero. Call it if the model outlives the Comm, whose memory is freed with
// it. Between Begin and Finish, Close abandons the step, which breaks the Comm.
func (d *DDP) Close() {
	switch {
	case d.err != nil:
		d.end()
	case d.step.open:
		d.abandon(errClosed)
	default:
		d.err = errClosed
		d.detach()
	}
}

// fail ends the DDP, also on the other ranks, and returns the error that has ended it.
func (d *DDP) fail(err error) error {
	if d.err == nil {
		d.err = err
		d.breakComms(err)
		d.detach()
	}
	return d.err
}

// breakComms makes the collectives of all ranks fail for the given reason, including those of Forward and Backward. It may be called while
// other goroutines of this rank are in collectives.
func (d *DDP) breakComms(reason error) {
	breakComm(d.comm, reason)
	if b := d.cfg.SyncBatchNorm; b != nil {
		breakComm(b.comm, reason)
	}
}

// detach gives each parameter a gradient of its own: after a failure, other ranks may still write to the Comm's memory.
func (d *DDP) detach() {
	for _, m := range d.members {
		m.param.Grad, m.param.HasGrad = make([]float32, len(m.param.Value)), false
	}
	d.arena, d.nextOrder = nil, nil
}

// Config is the configuration of a DDP. It must be equal on all ranks; of Hooks, types and Strings are compared.
type Config struct {
	// BucketBytes is the size from which a bucket of gradients is full. FirstBucketBytes is the same for the bucket
	// that is full first: it is smaller, so that communication begins early. 0: 25 MiB and 1 MiB, as in PyTorch.
	BucketBytes      int
	FirstBucketBytes int

	// Overlap starts each bucket's all-reduce as soon as the bucket is full, while Backward continues. Without it, all start after
	// Backward.
	Overlap bool

	// FindUnused allows parameters that a step does not use. A bucket with an unused parameter waits for the end of
	// Backward, and one more small all-reduce finds out which parameters any rank has used. A parameter that no rank has used gets no
	// gradient: HasGrad is false, and Grad zero. But the residual that a Hook keeps for it from earlier steps counts as a gradient.
	FindUnused bool

	// BroadcastBuffers makes SyncBuffers copy rank 0's buffers to all ranks.
	BroadcastBuffers bool

	// SyncBatchNorm sums the model's batch normalization. It must be made of the same Comm; nil: the model has none. When the DDP
	// fails, or New with its Comm, its sums fail, too, and when they fail, so does the step.
	SyncBatchNorm *SyncBatchNorm

	// Hook averages buckets in another way; nil: by an all-reduce of float32. Each rank has a Hook of its own. If it is a
	// fmt.Stringer, String must contain all its settings that must be the same on all ranks.
	Hook Hook
}

// DefaultConfig returns the defaults of PyTorch's DistributedDataParallel.
func DefaultConfig() Config { return Config{Overlap: true, BroadcastBuffers: true} }

const (
	defaultBucketBytes      = 25 << 20
	defaultFirstBucketBytes = 1 << 20
)

func (c Config) validate() error {
	if c.BucketBytes < 0 || c.FirstBucketBytes < 0 {
		return fmt.Errorf("buckets of %d bytes, the first of %d: sizes must not be negative", c.BucketBytes, c.FirstBucketBytes)
	}
	return nil
}

// complete fills in the defaults.
func (c Config) complete() Config {
	c.BucketBytes = cmp.Or(c.BucketBytes, defaultBucketBytes)
	c.FirstBucketBytes = cmp.Or(c.FirstBucketBytes, defaultFirstBucketBytes)
	return c
}

// String returns all settings that must be the same on all ranks.
func (c Config) String() string {
	hook := fmt.Sprintf("%T", c.Hook) // never its fields: pointers differ between ranks
	if s, ok := c.Hook.(fmt.Stringer); ok {
		hook += " " + s.String()
	}
	return fmt.Sprintf("buckets of %d bytes, the first of %d, overlap %t, find unused %t, broadcast buffers %t, "+
		"sync batch norm %t, hook %s",
		c.BucketBytes, c.FirstBucketBytes, c.Overlap, c.FindUnused, c.BroadcastBuffers, c.SyncBatchNorm != nil, hook)
}

// breakComm makes the calls of all ranks on comm fail for the given reason, which the other ranks learn. If comm is broken already, it does
// nothing.
func breakComm(comm *mpi.Comm, reason error) {
	comm.Barrier(endedContext{context.Background(), reason}) // its error is the reason
}

// endedContext is a context that is done for the given reason.
type endedContext struct {
	context.Context
	reason error
}

func (g endedContext) Done() <-chan struct{} { return ended }
func (g endedContext) Err() error            { return g.reason }

// ended is closed.
var ended = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
