package ddp

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"ddpbatch/mpi"
)

// No gradient is lost: all means that were returned and the mean residual add up to all gradients. And residuals stay within their bound.
func TestInt8Feedback(t *testing.T) {
	const n, steps = 1000, 30
	onRanks(t, func(ctx context.Context, comm *mpi.Comm) error {
		params, buckets := newReplica(1, []int{n})
		h := NewInt8Hook()
		if err := h.Bind(ctx, comm, buckets); err != nil {
			return err
		}
		world := float64(comm.Size())
		balance := make([]float64, n) // all gradients of this rank, less all means
		left := h.State()[0].Value
		for step := range steps {
			fill(params, comm.Rank(), step)
			top := 0.0
			for i, g := range params[0].Grad {
				balance[i] += float64(g)
				top = max(top, math.Abs(float64(g))+math.Abs(float64(left[i])))
			}
			tops := []float64{top}
			if err := mpi.AllReduce(ctx, comm, tops, mpi.Max); err != nil {
				return err
			}
			if err := reduceAll(ctx, comm, h, buckets); err != nil {
				return err
			}
			for i, g := range params[0].Grad {
				balance[i] -= float64(g)
				// Half a scale of what this rank sent, and for the owner of half a scale of the mean, times the ranks.
				if bound := tops[0] / 254 * (1 + world) * 1.001; math.Abs(float64(left[i])) > bound {
					return fmt.Errorf("step %d: residual %d is %v, above %v", step, i, left[i], bound)
				}
			}
		}
		for i, e := range left {
			balance[i] -= float64(e)
		}
		if err := mpi.AllReduce(ctx, comm, balance, mpi.Sum); err != nil {
			return err
		}
		for i, b := range balance {
			// Each step rounds a few times, at 2^-24 of a gradient of up to 0.05 and of world times the mean's error.
			if math.Abs(b) > steps*world*world*0.05*0x1p-22 {
				return fmt.Errorf("element %d: %v is missing", i, b)
			}
		}
		return nil
	})
}

// A block that is not finite anywhere leaves its residuals on all ranks as they were, and no others.
func TestInt8KeepsResidualsOfALostBlock(t *testing.T) {
	onWorld(t, 3, func(ctx context.Context, comm *mpi.Comm) error {
		params, buckets := newReplica(1, []int{3 * blockSize})
		h := NewInt8Hook()
		if err := h.Bind(ctx, comm, buckets); err != nil {
			return err
		}
		fill(params, comm.Rank(), 0)
		if err := reduceAll(ctx, comm, h, buckets); err != nil {
			return err
		}
		left := h.State()[0].Value
		before := slices.Clone(left)
		fill(params, comm.Rank(), 1)
		if comm.Rank() == 1 {
			params[0].Grad[blockSize] = float32(math.Inf(1))
		}
		if err := reduceAll(ctx, comm, h, buckets); err != nil {
			return err
		}
		for i, g := range params[0].Grad {
			lost := i/blockSize == 1
			if (g != g) != lost {
				return fmt.Errorf("mean %d is %v", i, g)
			}
			if lost && left[i] != before[i] {
				return fmt.Errorf("residual %d is %v, was %v", i, left[i], before[i])
			}
		}
		return nil
	})
}

// The bytes that travel are little more than a quarter of float32's, and ranks have about as many blocks each, also of small parameters. All
// plans of a world agree.
func TestInt8Plan(t *testing.T) {
	for world := 1; world <= 5; world++ {
		shapes := [][]int{{1000}, {256}, {257}, {512, 784}}
		for range 200 {
			shapes = append(shapes, []int{64})
		}
		_, buckets := newReplica(len(shapes), shapes...)
		b := buckets[0]
		least, most, begin := math.MaxInt, 0, 0
		for rank := range world {
			plan := newInt8Plan(b, world, rank)
			if ratio := float64(plan.size) / float64(4*len(b.Data)); ratio > 0.26 {
				t.Errorf("records are %v of float32's bytes", ratio)
			}
			if plan.begin != begin {
				t.Errorf("rank %d's records begin at %d, those before end at %d", rank, plan.begin, begin)
			}
			begin += plan.bytes[rank]
			elements := 0
			for _, block := range plan.mine() {
				if block.owner != rank {
					t.Errorf("rank %d averages a block of rank %d", rank, block.owner)
				}
				elements += block.end - block.begin
			}
			if elements != plan.elements {
				t.Errorf("rank %d has %d elements, counted %d", rank, elements, plan.elements)
			}
			least, most = min(least, elements), max(most, elements)
		}
		if float64(most) > 1.02*float64(least) {
			t.Errorf("%d ranks average %d to %d elements", world, least, most)
		}
	}
}
