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

// Bucket holds the gradients of several parameters in one piece of memory, which one all-reduce averages.
type Bucket struct {
	Index  int
	Params []*nn.Param // in the order of their gradients in Data
	Data   []float32   // the gradients; the Grads of Params are views of it, without gaps
}

// Hook averages buckets in its own way, for example in fewer bits (PyTorch's communication hook).
type Hook interface {
	// Bind is called before the first Reduce, and again when parameters have been assigned to other buckets: in New, and once
	// in the second step. It is collective: a Hook allocates its memory here, and moves what it keeps for each parameter.
	Bind(ctx context.Context, comm *mpi.Comm, buckets []*Bucket) error

	// Reduce replaces b.Data by its mean over all ranks of comm, or an approximation, with the same bits on every rank. It is called for
	// all buckets of a step, including parameters that were not used, one after another, in the order of their Index on every rank, and
	// never while Bind or State is called. With Config.Overlap it is called on another goroutine than Backward, and at the same time;
	// otherwise in Finish. A panic fails the step.
	Reduce(ctx context.Context, comm *mpi.Comm, b *Bucket) error

	// State returns what this rank's checkpoint must keep, sorted by name within each kind. The values are the Hook's own memory: a caller
	// that restores a checkpoint writes to them. It is called between steps; Bind may replace the arrays.
	State() []State
}

// State is a named array of a rank's own state, which a checkpoint keeps for each rank.
type State struct {
	Name  string
	Shape []int
	Value []float32
	// Whole says that it is of the whole model and not of one parameter. Hooks for parts of the same model, such as stages of a pipeline,
	// have the same value under this name, except for a Hook that never has a bucket.
	Whole bool
}

// scratch is a buffer of a Hook for one bucket at a time, in the memory that is fastest for collectives.
type scratch[T mpi.Number] struct {
	data []T
}

// grow makes room for n elements. It is collective, with the same n on all ranks. The contents may be lost.
func (s *scratch[T]) grow(ctx context.Context, comm *mpi.Comm, n int) error {
	if n <= len(s.data) {
		return nil // memory of Alloc cannot be freed: keep it
	}
	data, err := mpi.Alloc[T](ctx, comm, n)
	if err != nil {
		return fmt.Errorf("allocate a buffer of the communication hook: %w", err)
	}
	s.data = data
	return nil
}

// longest returns the length of the longest bucket.
func longest(buckets []*Bucket) int {
	n := 0
	for _, b := range buckets {
		n = max(n, len(b.Data))
	}
	return n
}

// feedback keeps the residuals: what compression has left out of the gradients of this rank, to be added to those of the next step (error
// feedback, arXiv 1901.09847): e <- g + e - what was sent of it.
//
// The mean of the residuals over ranks is what all means applied so far lack in total. So if another number of ranks continues and each
// gets that mean, nothing is lost.
type feedback struct {
	left   [][]float32 // by group, parameter by parameter
	states []State     // views of left, by name
}

// bind keeps residuals for these groups of parameters: residuals of known parameters move, others are zero.
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

// narrow sends gradients in 16 bits, half the bytes of float32.
type narrow[T mpi.Float16 | mpi.BFloat16] struct {
	name    string
	to      func(dst []uint16, x []float32)
	from    func(dst []float32, x []uint16)
	scratch scratch[T]
}

// NewFloat16Hook returns a Hook that averages in IEEE half precision, with 10 bits of fraction (PyTorch's fp16_compress_hook).
//
// Each rank divides a gradient by the number of ranks in float32 and rounds it to float16; every sum of two of them, in the
// all-reduce, is rounded again. Magnitudes below 2^-25 times the number of ranks become zero. Magnitudes that overflow, from 65,520 on, are
// Inf in the mean on all ranks: scale the loss down, as a loss scaler does.
func NewFloat16Hook() Hook {
	return &narrow[mpi.Float16]{name: "float16", to: half.ToFloat16s, from: half.FromFloat16s}
}

// NewBFloat16Hook returns a Hook that averages in bfloat16 (PyTorch's bf16_compress_hook): with the range of float32 and 7 bits of
// fraction. Values are rounded at the same points as by NewFloat16Hook.
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
	vec.Scale(b.Data, 1/float32(comm.Size()))                                           // divide first, so that fewer values overflow
	h.to(words, b.Data)
	if err := mpi.AllReduce(ctx, comm, sent, mpi.Sum); err != nil {
		return fmt.Errorf("all-reduce bucket %d in %s: %w", b.Index, h.name, err)
	}
	h.from(b.Data, words)
	return nil
}

// State implements Hook. It returns nil.
func (*narrow[T]) State() []State { return nil }

// String returns the type that is sent.
func (h *narrow[T]) String() string { return h.name }
