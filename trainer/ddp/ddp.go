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
	packed   []float32 // the values of buffers, one after another
	syncTime time.Duration

	arena       []float32 // all gradients
	buckets     []*Bucket
	order       []int32 // the arena's: indices in members
	nextOrder   []int32 // the order from the next step on; nil: no change
	orderFixed  bool    // order will not change any more
	hookUnbound bool    // the Hook does not know the buckets yet

	step  syncStep
	stats Stats
	err   error // what has ended it
}

// member is a parameter and where it is in the buckets.
type member struct {
	param  *nn.Param
	index  int // in DDP.members
	uses   int // how often the model has it: that many calls of Pass.Done make its gradient complete
	left   int // of them, in this step
	bucket int
}

// New wraps a model, given as its parameters and buffers, each of which has a name of its own. It returns an error, on every rank, unless
// all ranks have the same names and shapes in the same order, and the same cfg. It then gives all ranks rank 0's values, and moves the
// gradients into memory of the Comm's, where they stay, all zero at first, until Close.
//
// A parameter that is listed several times has a complete gradient when that many calls of Pass.Done have been made for it.
func New(ctx context.Context, comm *mpi.Comm, params []*nn.Param, buffers []*nn.Buffer, cfg Config) (*DDP, error) {
	d := &DDP{comm: comm, cfg: cfg, member: map[*nn.Param]*member{}, buffers: buffers}
	if err := d.wrap(ctx, params); err != nil {
		if comm.Err() != nil {
			d.breakComms(err) // ranks that have heard of no failure yet may wait in a sum
		}
		return nil, err
	}
	return d, nil
}

// wrap does what New does, but for what follows a failure.
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

// ZeroGrad sets all gradients of this rank to zero, and unused. It is not collective.
func (d *DDP) ZeroGrad() {
	if d.step.open {
		panic("ddp: ZeroGrad between Begin and Finish")
	}
	for _, m := range d.members {
		clear(m.param.Grad)
		m.param.HasGrad = false
	}
}

// Close gives the parameters gradients of their own, all zero. A model that outlives the Comm needs it, as the memory goes with
// that. Between Begin and Finish, Close gives the step up, which breaks the Comm.
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

// fail ends the DDP, on the other ranks, too, and returns what has ended it.
func (d *DDP) fail(err error) error {
	if d.err == nil {
		d.err = err
		d.breakComms(err)
		d.detach()
	}
	return d.err
}

// breakComms has the calls of all ranks fail for the given reason, those of Forward and Backward, too. It may be called while others of
// this rank go on.
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

// Config is what ranks choose before they wrap a model. It must be equal on all of them, Hooks in their types and Strings.
type Config struct {
	// BucketBytes is how large a bucket of gradients gets before the next one begins, and FirstBucketBytes the same for the one
	// that is full first: it is smaller, so that communication begins early. 0: 25 MiB and 1 MiB, as in PyTorch.
	BucketBytes      int
	FirstBucketBytes int

	// Overlap has each bucket's all-reduce start as soon as the bucket is full, while Backward goes on. Without it, all start after
	// Backward.
	Overlap bool

	// FindUnused allows parameters that a step does not use. A bucket with an unused parameter waits for the end of
	// Backward, and one more small all-reduce tells who has used what. A parameter that no rank has used is left without a gradient: with
	// HasGrad false, and Grad zero. But what a Hook owes it from earlier steps is a gradient like any other.
	FindUnused bool

	// BroadcastBuffers has SyncBuffers give all ranks the same buffers.
	BroadcastBuffers bool

	// SyncBatchNorm is what the model's batch normalization sums with, made of the same Comm; nil: it has none. When the DDP
	// fails, or New with its Comm, its sums fail with it, and when they fail, so does the step.
	SyncBatchNorm *SyncBatchNorm

	// Hook averages buckets another way than by all-reduce of float32; nil: by that. Each rank has one of its own. Where it is a
	// fmt.Stringer, String tells all its settings that ranks must agree on.
	Hook Hook
}

// DefaultConfig is what PyTorch's DistributedDataParallel does by default.
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

// complete fills in what was left out.
func (c Config) complete() Config {
	c.BucketBytes = cmp.Or(c.BucketBytes, defaultBucketBytes)
	c.FirstBucketBytes = cmp.Or(c.FirstBucketBytes, defaultFirstBucketBytes)
	return c
}

// String tells all that ranks must agree on.
func (c Config) String() string {
	hook := fmt.Sprintf("%T", c.Hook) // never its fields: pointers differ between ranks
	if s, ok := c.Hook.(fmt.Stringer); ok {
		hook += " " + s.String()
	}
	return fmt.Sprintf("buckets of %d bytes, the first of %d, overlap %t, find unused %t, broadcast buffers %t, "+
		"sync batch norm %t, hook %s",
		c.BucketBytes, c.FirstBucketBytes, c.Overlap, c.FindUnused, c.BroadcastBuffers, c.SyncBatchNorm != nil, hook)
}

// breakComm has the calls of all ranks on comm fail for the given reason, which the others are told. Where comm is broken already, it does
// nothing.
func breakComm(comm *mpi.Comm, reason error) {
	comm.Barrier(endedContext{context.Background(), reason}) // its error is the reason
}

// endedContext is a context that has ended for a reason.
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
