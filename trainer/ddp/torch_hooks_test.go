package ddp

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/testkit/torch"
	"ddpbatch/mpi"
)

//go:embed testdata/powersgd.py
var powerSGDScript string

// PyTorch's powerSGD_hook gives the same means for the same first Q, residuals and warm starts included.
func TestPowerSGDIsPyTorchs(t *testing.T) { // without the race detector
	const rank, steps = 2, 6
	shapes := [][]int{{20, 30}, {20}, {8, 4, 3, 3}}
	cfg := PowerSGDConfig{Rank: rank, MinRate: 1, Seed: 9}

	dir := t.TempDir()
	args := []string{dir, fmt.Sprint(rank), fmt.Sprint(steps)}
	for _, shape := range shapes {
		args = append(args, strings.ReplaceAll(strings.Trim(fmt.Sprint(shape), "[]"), " ", "x"))
	}
	params, buckets := newReplica(len(shapes), shapes...)
	h := mustPowerSGD(cfg)
	if err := h.Bind(t.Context(), mpi.Self(), buckets); err != nil {
		t.Fatal(err)
	}
	var grads, q []float32
	for step := range steps {
		for rank := range 2 {
			fill(params, rank, step)
			grads = append(grads, gradients(params)...)
		}
	}
	for _, s := range h.State() {
		for j := 0; strings.HasPrefix(s.Name, "powersgd.q.") && j < s.Shape[1]; j++ {
			for k := range rank {
				q = append(q, s.Value[k*s.Shape[1]+j])
			}
		}
	}
	torch.WriteFloats(t, filepath.Join(dir, "grads.f32"), grads)
	torch.WriteFloats(t, filepath.Join(dir, "q.f32"), q)
	torch.Run(t, powerSGDScript, args...)
	want := torch.ReadFloats(t, filepath.Join(dir, "means.f32"))

	onWorld(t, 2, func(ctx context.Context, comm *mpi.Comm) error {
		params, buckets := newReplica(len(shapes), shapes...)
		h := mustPowerSGD(cfg)
		if err := h.Bind(ctx, comm, buckets); err != nil {
			return err
		}
		rest := want
		for step := range steps {
			fill(params, comm.Rank(), step)
			if err := reduceAll(ctx, comm, h, buckets); err != nil {
				return err
			}
			for i, p := range params {
				top := 0.0
				for _, v := range rest[:len(p.Grad)] {
					top = max(top, math.Abs(float64(v)))
				}
				for j, g := range p.Grad {
					// Both round products of 30 to 40 terms at 2^-24; a power iteration magnifies that by the ratio of singular values, less
					// than 2 for random matrices, in each step.
					if math.Abs(float64(g-rest[j])) > 1e-4*top {
						return fmt.Errorf("step %d, parameter %d: element %d is %v, PyTorch has %v", step, i, j, g, rest[j])
					}
				}
				rest = rest[len(p.Grad):]
			}
		}
		return nil
	})
}
