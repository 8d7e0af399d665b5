package ddp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"unsafe"

	"ddpbatch/internal/half"
	"ddpbatch/mpi"
	"ddpbatch/trainer/internal/vec"
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
	// all buckets of a step, with parameters that were not used, too, in the order of their Index on every rank, one after another, and
	// never while Bind or State is called: with Config.Overlap on another goroutine than Backward, which goes on, else in Finish.
	// A panic is an error of the step.
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

// scratch is a buffer of a Hook for one bucket at a time, in memory that collectives work on fastest.
type scratch[T mpi.Number] struct {
	data []T
}

// grow makes room for n elements. It is collective, with the same n on all ranks. What was there may be lost.
func (s *scratch[T]) grow(ctx context.Context, comm *mpi.Comm, n int) error {
	if n <= len(s.data) {
		return nil // memory of Alloc cannot be given back: keep what there is
	}
	data, err := mpi.Alloc[T](ctx, comm, n)
	if err != nil {
		return fmt.Errorf("allocate a buffer of the communication hook: %w", err)
	}
	s.data = data
	return nil
}

// longest is the length of the longest bucket.
func longest(buckets []*Bucket) int {
	n := 0
	for _, b := range buckets {
		n = max(n, len(b.Data))
	}
	return n
}

// feedback keeps what compression has left out of the gradients of this rank, to be added to those of the next step (error feedback,
// arXiv 1901.09847): e <- g + e - what was sent of it.
//
// The mean of the residuals over ranks is what the means that were applied so far lack. Ranks of another number that all
// get that mean go on without a loss.
type feedback struct {
	left   [][]float32 // by group, parameter by parameter
	states []State     // views of left, by name
}

// bind keeps residuals for groups of parameters from now on: those of known parameters move, others are zero.
func (f *feedback) bind(groups [][]*nn.Param) {
	before := f.states
	f.left, f.states = make([][]float32, len(groups)), nil
	for i, group := range groups {
		n := 0
		for _, p := range group {
			n += len(p.Grad)
		}
		rest := make([]float32, n)
		f.left[i] = rest
		for _, p := range group {
			s := State{Name: "residual." + p.Name, Shape: p.Shape}
			s.Value, rest = rest[:len(p.Grad):len(p.Grad)], rest[len(p.Grad):]
			if known := slices.IndexFunc(before, func(b State) bool { return b.Name == s.Name }); known >= 0 {
				copy(s.Value, before[known].Value)
			}
			f.states = append(f.states, s)
		}
	}
	slices.SortFunc(f.states, func(a, b State) int { return cmp.Compare(a.Name, b.Name) })
}

// narrow sends gradients in 16 bits: half the bytes of float32.
type narrow[T mpi.Float16 | mpi.BFloat16] struct {
	name    string
	to      func(dst []uint16, x []float32)
	from    func(dst []float32, x []uint16)
	scratch scratch[T]
}

// NewFloat16Hook averages in IEEE half precision, 10 bits of fraction (PyTorch's fp16_compress_hook).
//
// A gradient is divided by the number of ranks in float32 and rounded to float16 once on each rank; every sum of two of them, in the
// all-reduce, is rounded again. Magnitudes below 2^-25 times the number of ranks become zero. What overflows, from 65,520 on, is an Inf in
// the mean on all ranks: scale the loss down, as a loss scaler does.
func NewFloat16Hook() Hook {
	return &narrow[mpi.Float16]{name: "float16", to: half.ToFloat16s, from: half.FromFloat16s}
}

// NewBFloat16Hook averages in bfloat16 (PyTorch's bf16_compress_hook): the range of float32 with 7 bits of fraction. Values
// are rounded where those of NewFloat16Hook are.
func NewBFloat16Hook() Hook {
	return &narrow[mpi.BFloat16]{name: "bfloat16", to: half.ToBFloat16s, from: half.FromBFloat16s}
}

// Bind implements Hook.
func (h *narrow[T]) Bind(ctx context.Context, comm *mpi.Comm, buckets []*Bucket) error {
	return h.scratch.grow(ctx, comm, longest(buckets))
}

// Reduce implements Hook.
func (h *narrow[T]) Reduce(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
	sent := h.scratch.data[:len(b.Data)]
	words := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(sent))), len(sent)) // T is a uint16
	vec.Scale(b.Data, 1/float32(comm.Size()))                                           // first: fewer values overflow
	h.to(words, b.Data)
	if err := mpi.AllReduce(ctx, comm, sent, mpi.Sum); err != nil {
		return fmt.Errorf("all-reduce bucket %d in %s: %w", b.Index, h.name, err)
	}
	h.from(b.Data, words)
	return nil
}

// State implements Hook: there is none.
func (*narrow[T]) State() []State { return nil }

// String is the type that is sent.
func (h *narrow[T]) String() string { return h.name }
