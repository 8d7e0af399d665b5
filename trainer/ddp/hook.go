package ddp

import (
	"context"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// Bucket is the gradients of several parameters in one piece of memory, which one all-reduce averages.
type Bucket struct {
	Index  int
	Params []*nn.Param // in the order of their gradients in Data
	Data   []float32   // the Grads of Params are views of it, one after another, without gaps
}

// Hook averages buckets its own way, such as in fewer bits (PyTorch's communication hook).
type Hook interface {
	// Bind is called before the first Reduce, and again whenever the parameters have been dealt to buckets anew: in New, and once
	// in the second step. It is collective: a Hook allocates here what it needs, and moves what it keeps for each parameter.
	Bind(ctx context.Context, comm *mpi.Comm, buckets []*Bucket) error

	// Reduce replaces b.Data by its mean over all ranks of comm, or something near it, with the same bits on every rank. It is called for
	// all buckets of a step, with parameters that were not used, too, in the order of their Index on every rank, one after another, and never while Bind or State is called: with
	// Config.Overlap on another goroutine than Backward, which goes on, else in Finish. A panic is an error of the step.
	Reduce(ctx context.Context, comm *mpi.Comm, b *Bucket) error

	// State is what this rank's checkpoint keeps, sorted by name within each kind. The values are the Hook's own: who restores a checkpoint
	// writes to them. It is called between steps; Bind may replace the arrays.
	State() []State
}

// State is a named array of a rank's own state, which a checkpoint keeps for each rank.
type State struct {
	Name  string
	Shape []int
	Value []float32
	// Whole says that it is of the whole model and not of one parameter: hooks for parts of the same model, as stages of a pipeline have
	// them, keep the same under this name, but for one that never has a bucket.
	Whole bool
}
