package ddp

import (
	"context"
	"fmt"
	"unsafe"

	"ddpbatch/mpi"
	"ddpbatch/trainer/internal/vec"
)

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
// all-reduce, is rounded again. Magnitudes below 2^-25 times the number of ranks become zero. What overflows, from 65,520 on, is an Inf in the
// mean on all ranks: scale the loss down, as a loss scaler does.
func NewFloat16Hook() Hook {
	return &narrow[mpi.Float16]{name: "float16", to: vec.ToFloat16, from: vec.FromFloat16}
}

// NewBFloat16Hook averages in bfloat16 (PyTorch's bf16_compress_hook): the range of float32 with 7 bits of fraction. Values
// are rounded where those of NewFloat16Hook are.
func NewBFloat16Hook() Hook {
	return &narrow[mpi.BFloat16]{name: "bfloat16", to: vec.ToBFloat16, from: vec.FromBFloat16}
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
