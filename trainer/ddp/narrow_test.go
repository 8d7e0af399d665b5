package ddp

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"ddpbatch/mpi"
)

// Between two ranks, each value is halved, rounded and added, with one more rounding.
func TestNarrowRounds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	values := [2][]float32{}
	for rank := range values {
		for range 1000 {
			values[rank] = append(values[rank], float32(r.NormFloat64()*math.Pow(2, float64(r.IntN(20)-15))))
		}
	}
	for name, round := range map[string]func(float32) float32{
		"float16":  func(v float32) float32 { return mpi.ToFloat16(v).Float32() },
		"bfloat16": func(v float32) float32 { return mpi.ToBFloat16(v).Float32() },
	} {
		onWorld(t, 2, func(ctx context.Context, comm *mpi.Comm) error {
			params, buckets := newReplica(1, []int{1000})
			h := hooks[name]()
			if err := h.Bind(ctx, comm, buckets); err != nil {
				return err
			}
			copy(params[0].Grad, values[comm.Rank()])
			if err := reduceAll(ctx, comm, h, buckets); err != nil {
				return err
			}
			for i, g := range params[0].Grad {
				if want := round(round(values[0][i]/2) + round(values[1][i]/2)); g != want {
					return fmt.Errorf("%s: element %d is %v, want %v", name, i, g, want)
				}
			}
			return nil
		})
	}
}

// 65,520 is the first magnitude that float16 rounds to infinity. It is the mean that counts, not the gradient of a rank.
func TestFloat16Overflows(t *testing.T) {
	onWorld(t, 2, func(ctx context.Context, comm *mpi.Comm) error {
		params, buckets := newReplica(1, []int{3})
		h := NewFloat16Hook()
		if err := h.Bind(ctx, comm, buckets); err != nil {
			return err
		}
		copy(params[0].Grad, []float32{65520, 65504, -1e9})
		if comm.Rank() == 1 {
			params[0].Grad[2] = 0
		}
		if err := reduceAll(ctx, comm, h, buckets); err != nil {
			return err
		}
		g := params[0].Grad
		if !math.IsInf(float64(g[0]), 1) || g[1] != 65504 || !math.IsInf(float64(g[2]), -1) {
			return fmt.Errorf("means are %v, want +Inf, 65504 and -Inf", g)
		}
		return nil
	})
}
