package ddp

import (
	"cmp"
	"errors"
	"fmt"
)

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

	// Uneven is for ranks that run out of input at different times.
	Uneven Uneven

	// SyncBatchNorm is what the model's batch normalization sums with, made of the same Comm; nil: it has none. When the DDP
	// fails, its sums fail with it, and when they fail, so does the step.
	SyncBatchNorm *SyncBatchNorm

	// Hook averages buckets another way than by all-reduce of float32; nil: by that. Each rank has one of its own. Where it is a fmt.Stringer,
	// String tells all its settings that ranks must agree on.
	Hook Hook
}

// Uneven says whether ranks may run out of input at different times (see DDP.Shadow), and what gradients are divided by then.
type Uneven uint8

const (
	NotAllowed     Uneven = iota // all ranks have equally many steps
	DivideByWorld                // by the number of ranks: rows keep their weight (PyTorch's divide_by_initial_world_size)
	DivideByActive               // by the number of ranks that had input in this step
)

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
	if c.Uneven > DivideByActive {
		return fmt.Errorf("there is no way %d to deal with uneven inputs", c.Uneven)
	}
	if c.Uneven != NotAllowed && c.SyncBatchNorm != nil {
		return errors.New("uneven inputs with SyncBatchNorm: its sums need a Forward and a Backward on each rank in each step, " +
			"which one without input has not; give all ranks as many steps")
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
	return fmt.Sprintf("buckets of %d bytes, the first of %d, overlap %t, find unused %t, broadcast buffers %t, uneven %d, "+
		"sync batch norm %t, hook %s",
		c.BucketBytes, c.FirstBucketBytes, c.Overlap, c.FindUnused, c.BroadcastBuffers, c.Uneven, c.SyncBatchNorm != nil, hook)
}
