package ddp

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// shapes are those of the parameters in tests: longer than a block of int8 and shorter, vectors and matrices, a convolution.
var shapes = [][]int{{20, 30}, {20}, {8, 4, 3, 3}, {8}, {1}, {1, 5}}

// newReplica makes parameters of some shapes, in buckets of as many of them as said.
func newReplica(perBucket int, shapes ...[]int) ([]*nn.Param, []*Bucket) {
	var params []*nn.Param
	for i, shape := range shapes {
		size := 1
		for _, n := range shape {
			size *= n
		}
		params = append(params, &nn.Param{Name: fmt.Sprint("p", i), Shape: shape, Value: make([]float32, size), Grad: make([]float32, size)})
	}
	return params, newBuckets(params, perBucket)
}

// newBuckets moves the gradients of params to new buckets.
func newBuckets(params []*nn.Param, perBucket int) []*Bucket {
	var buckets []*Bucket
	for part := range slices.Chunk(params, perBucket) {
		b := &Bucket{Index: len(buckets), Params: part}
		for _, p := range part {
			b.Data = append(b.Data, p.Grad...)
		}
		rest := b.Data
		for _, p := range part {
			n := len(p.Grad)
			p.Grad, rest = rest[:n:n], rest[n:]
		}
		buckets = append(buckets, b)
	}
	return buckets
}

// fill writes the gradients that a rank has in a step: random, of another magnitude for each parameter.
func fill(params []*nn.Param, rank, step int) {
	r := rand.New(rand.NewPCG(uint64(rank), uint64(step)))
	for i, p := range params {
		size := math.Pow(10, float64(i%4)-2)
		for j := range p.Grad {
			p.Grad[j] = float32(size * r.NormFloat64())
		}
	}
}

// reduceAll is one step of communication.
func reduceAll(ctx context.Context, comm *mpi.Comm, h Hook, buckets []*Bucket) error {
	for _, b := range buckets {
		if err := h.Reduce(ctx, comm, b); err != nil {
			return err
		}
	}
	return nil
}

// gradients is a copy of all gradients.
func gradients(params []*nn.Param) []float32 {
	var all []float32
	for _, p := range params {
		all = append(all, p.Grad...)
	}
	return all
}

// sameBits wants x to be the same on all ranks, NaN included.
func sameBits(ctx context.Context, comm *mpi.Comm, what string, x []float32) error {
	return NewDrift(comm, []*nn.Param{{Name: what, Value: x}}).Check(ctx, 0)
}

// onRanks runs f in worlds of 1 to 4 ranks.
func onRanks(t *testing.T, f func(ctx context.Context, comm *mpi.Comm) error) {
	t.Helper()
	for world := 1; world <= 4; world++ {
		onWorld(t, world, f)
	}
}

func onWorld(t *testing.T, world int, f func(ctx context.Context, comm *mpi.Comm) error) {
	t.Helper()
	for rank, err := range ranks(t, world, f) {
		if err != nil {
			t.Errorf("rank %d of %d: %v", rank, world, err)
		}
	}
}
