package ddp

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/mpi"
)

// No gradient is lost: all returned means and the mean residual add up to the mean of all gradients. Residuals stay within their bound.
func TestInt8FeedbackLosesNoGradient(t *testing.T) {
	const n, steps = 1000, 30
	onRanks(t, func(ctx context.Context, comm *mpi.Comm) error {
		params, buckets := newReplica(1, []int{n})
		h := NewInt8Hook()
		if err := h.Bind(ctx, comm, buckets); err != nil {
			return err
		}
		world := float64(comm.Size())
		balance := make([]float64, n) // the sum of this rank's gradients, less the sum of the means
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
				// A residual is at most half a scale of what this rank sent. The owner of a block adds half a scale of the mean, times the
				// number of ranks.
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
			// Each step rounds a few times, at 2^-24 of a gradient of up to 0.05 and of the mean's error times the number of ranks.
			if math.Abs(b) > steps*world*world*0.05*0x1p-22 {
				return fmt.Errorf("element %d: %v is missing", i, b)
			}
		}
		return nil
	})
}

// If a block has a gradient that is not finite on some rank, all ranks keep its residuals as they were. Other blocks are not affected.
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

// A plan sends little more than a quarter of the bytes of float32, and shares the elements almost evenly among the ranks, even if most
// parameters are small. The plans of all ranks agree.
func TestInt8PlanSharesBlocksEvenly(t *testing.T) {
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

// A record's values are at most half a scale from what was written, and its largest magnitude is 127 scales.
func TestQuantizeIsNear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.Float32Range(-1, 1), 0, blockSize).Draw(t, "x")
		exponent := rapid.IntRange(-120, 100).Draw(t, "exponent")
		top := 0.0
		for i := range x {
			x[i] = float32(math.Ldexp(float64(x[i]), exponent))
			top = max(top, math.Abs(float64(x[i])))
		}
		// quantize must overwrite whatever the record held before.
		record := slices.Repeat([]byte{0xaa}, scaleSize+len(x))
		quantize(record, x)
		got := make([]float32, len(x))
		addDequantized(got, record, 1)
		scale := top / 127
		if top < 0x1p-121 {
			scale = 2 * 0x1p-121 // all zeros
		}
		for i, v := range x {
			// The scale, its inverse and the product are rounded once each, which adds 127 times 3 x 2^-24 to half a scale.
			if e := math.Abs(float64(got[i]) - float64(v)); e > 0.50003*scale {
				t.Fatalf("element %d is %v, was %v: the error is %v scales", i, got[i], v, e/scale)
			}
		}
	})
}

func TestQuantizeIsExactAtTheEdges(t *testing.T) {
	inf, tiny := float32(math.Inf(1)), math.Float32frombits(1)
	for name, test := range map[string]struct{ x, want []float32 }{
		"empty":           {nil, nil},
		"zeros":           {[]float32{0, float32(math.Copysign(0, -1))}, []float32{0, 0}},
		"exact":           {[]float32{127, -127, 1, -1, 64, 0}, []float32{127, -127, 1, -1, 64, 0}},
		"ties to even":    {[]float32{127, 0.5, 1.5, -0.5, -1.5, 2.5}, []float32{127, 0, 2, 0, -2, 2}},
		"largest":         {[]float32{0x1.fffffep126, -0x1.fffffep126}, []float32{0x1.fffffep126, -0x1.fffffep126}},
		"smallest":        {[]float32{tiny, -tiny}, []float32{0, 0}},
		"first not zeros": {[]float32{0x1p-120}, []float32{0x1p-120}},
	} {
		record, got := make([]byte, scaleSize+len(test.x)), make([]float32, len(test.x))
		quantize(record, test.x)
		addDequantized(got, record, 1)
		for i, want := range test.want {
			// 127 scales need not be exactly the largest magnitude, since the scale and the product are rounded once each.
			if math.Abs(float64(got[i])-float64(want)) > math.Abs(float64(want))*0x1p-20 {
				t.Errorf("%s: element %d is %v, want %v", name, i, got[i], want)
			}
		}
	}
	for _, bad := range []float32{inf, -inf, 0x1p127, float32(math.NaN())} {
		record, got := make([]byte, scaleSize+2), make([]float32, 2)
		quantize(record, []float32{1, bad})
		addDequantized(got, record, 1)
		if got[0] == got[0] || got[1] == got[1] {
			t.Errorf("a block with %v is %v, want NaN", bad, got)
		}
	}
}

func BenchmarkQuantize(b *testing.B) {
	x, record := make([]float32, blockSize), make([]byte, scaleSize+blockSize)
	for i := range x {
		x[i] = float32(i%17) - 8
	}
	b.SetBytes(4 * blockSize)
	for b.Loop() {
		quantize(record, x)
	}
}

func BenchmarkDequantize(b *testing.B) {
	x, record := make([]float32, blockSize), make([]byte, scaleSize+blockSize)
	b.SetBytes(4 * blockSize)
	for b.Loop() {
		addDequantized(x, record, 1)
	}
}
