package ddp

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// Stepper is the part of an optimizer that Zero uses.
type Stepper interface {
	Step()
}

// Zero splits the work and the state of an optimizer over ranks (ZeRO stage 1, arXiv 1910.02054; PyTorch's
// ZeroRedundancyOptimizer): each rank has an optimizer of only its own parameters, updates those, and gets the values
// of the others from their owners. Gradients must be the same on all ranks, as with DDP. Then the parameters have the bits that a single
// optimizer of all parameters would compute, if it treats each parameter independently.
type Zero[T Stepper] struct {
	comm      *mpi.Comm
	optimizer T
	params    []*nn.Param // by owner
	closed    bool
	values    []float32 // of all parameters, by owner
	own       []float32 // this rank's part
	counts    []int
}

// NewZero assigns the parameters to ranks, and calls factory to make this rank's optimizer of its own parameters, in their order in params.
// A rank may have none, if there are more ranks than parameters.
//
// The Value of every parameter becomes a view of memory of comm, with the same contents, until Close: call NewZero before anything else
// keeps the slice. A parameter that is listed twice counts once. If factory returns an error on one rank, all ranks get an error.
func NewZero[T Stepper](ctx context.Context, comm *mpi.Comm, params []*nn.Param, factory func(own []*nn.Param) (T, error)) (*Zero[T],
	error) {
	dealt := deal(params, comm.Size())
	z := &Zero[T]{comm: comm, counts: make([]int, comm.Size()), params: slices.Concat(dealt...)}
	total, before := 0, 0
	for rank, part := range dealt {
		if rank == comm.Rank() {
			before = total
		}
		for _, p := range part {
			z.counts[rank] += len(p.Value)
		}
		total += z.counts[rank]
	}
	var err error
	if z.values, err = mpi.Alloc[float32](ctx, comm, total); err != nil {
		return nil, fmt.Errorf("zero: allocate the parameters: %w", err)
	}
	z.own = z.values[before:][:z.counts[comm.Rank()]]
	rest := z.values
	for _, p := range z.params {
		n := copy(rest, p.Value)
		p.Value, rest = rest[:n:n], rest[n:]
	}
	if z.optimizer, err = factory(dealt[comm.Rank()]); err != nil {
		err = fmt.Errorf("zero: make the optimizer of rank %d: %w", comm.Rank(), err)
	}
	if err := mpi.Agree(ctx, comm, err); err != nil {
		z.Close()
		return nil, err
	}
	return z, nil
}

// Close gives the parameters values of their own, which the optimizer then uses. Call it if the model outlives the Comm, whose
// memory is freed with it. It is not collective.
func (z *Zero[T]) Close() {
	if z.closed {
		return
	}
	z.closed = true
	for _, p := range z.params {
		p.Value = slices.Clone(p.Value)
	}
}

// deal assigns parameters to ranks, in their order in params: the largest first, each to the rank with the least
// so far, and among several to the lowest (PyTorch's _partition_parameters).
func deal(params []*nn.Param, world int) [][]*nn.Param {
	distinct := slices.Collect(nn.Distinct(params))
	largestFirst := slices.Clone(distinct)
	slices.SortStableFunc(largestFirst, func(a, b *nn.Param) int { return cmp.Compare(len(b.Value), len(a.Value)) })
	owner, sizes := map[*nn.Param]int{}, make([]int, world)
	for _, p := range largestFirst {
		rank := slices.Index(sizes, slices.Min(sizes))
		owner[p] = rank
		sizes[rank] += len(p.Value)
	}
	dealt := make([][]*nn.Param, world)
	for _, p := range distinct {
		dealt[owner[p]] = append(dealt[owner[p]], p)
	}
	return dealt
}

// Optimizer returns the optimizer of this rank's parameters.
func (z *Zero[T]) Optimizer() T { return z.optimizer }

// Step updates this rank's parameters, and gets the others from their owners with one all-gather of the parameters' size. After an error
// the values must not be used: some are of this step and some of the previous one, and other ranks may still write to them.
// Step panics after Close.
func (z *Zero[T]) Step(ctx context.Context) error {
	if z.closed {
		panic("ddp: Step of a closed Zero")
	}
	z.optimizer.Step()
	if err := mpi.AllGatherV(ctx, z.comm, z.values, z.own, z.counts); err != nil {
		return fmt.Errorf("zero: all-gather the parameters: %w", err)
	}
	return nil
}
