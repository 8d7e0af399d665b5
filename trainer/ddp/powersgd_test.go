package ddp

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/internal/testkit/torch"
	"ddpbatch/mpi"
	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// An approximation of full rank is the matrix itself, so the result is the mean.
func TestPowerSGDOfFullRankIsTheMean(t *testing.T) {
	onRanks(t, func(ctx context.Context, comm *mpi.Comm) error {
		params, buckets := newReplica(2, shapes...)
		h := mustPowerSGD(PowerSGDConfig{Rank: 100, MinRate: 1e-3})
		if err := h.Bind(ctx, comm, buckets); err != nil {
			return err
		}
		if n := len(h.State()); n != 1+2*3 {
			return fmt.Errorf("there are %d arrays of state, want those of 3 matrices", n)
		}
		for step := range 4 {
			fill(params, comm.Rank(), step)
			want := gradients(params)
			if err := mpi.AllReduce(ctx, comm, want, mpi.Avg); err != nil {
				return err
			}
			if err := reduceAll(ctx, comm, h, buckets); err != nil {
				return err
			}
			for i, g := range gradients(params) {
				// Products of up to 36 terms below 40, each rounded a few times at 2^-24.
				if math.Abs(float64(g-want[i])) > 5e-4 {
					return fmt.Errorf("step %d: gradient %d is %v, the mean %v", step, i, g, want[i])
				}
			}
		}
		return nil
	})
}

// PowerSGD finds a mean of no higher rank than the approximation within two steps, even after steps whose gradients were all zero. What
// those steps leave makes a poor first Q, but the second step makes up for it.
func TestPowerSGDFindsLowRank(t *testing.T) {
	onRanks(t, func(ctx context.Context, comm *mpi.Comm) error {
		params, buckets := newReplica(1, []int{30, 40})
		h := mustPowerSGD(PowerSGDConfig{Rank: 3, MinRate: 2})
		if err := h.Bind(ctx, comm, buckets); err != nil {
			return err
		}
		g := params[0].Grad
		for phase, size := range []float64{1, 0, 0, 1, 1e-20, 1e10} {
			missing := make([]float64, len(g))
			for range 2 {
				for i := range g {
					row, col := float64(i/40), float64(i%40)
					want := size * (math.Sin(row)*math.Cos(2*col) + math.Sin(3*row)*math.Cos(col)) // of rank 2, below the Rank above
					g[i] = float32(want * 2 * float64(comm.Rank()+1) / float64(comm.Size()+1))
					missing[i] += want
				}
				if err := reduceAll(ctx, comm, h, buckets); err != nil {
					return err
				}
				for i := range g {
					missing[i] -= float64(g[i])
				}
			}
			for i, m := range missing {
				// The residual of the steps before is their rounding, a few times 2^-24 of 2.
				if math.Abs(m) > 1e-5*size+1e-6 {
					return fmt.Errorf("phase %d: element %d lacks %v", phase, i, m)
				}
			}
		}
		return nil
	})
}

// No gradient is lost: all returned means and the mean residual add up to the mean of all gradients.
func TestPowerSGDFeedbackLosesNoGradient(t *testing.T) {
	const steps = 20
	onRanks(t, func(ctx context.Context, comm *mpi.Comm) error {
		params, buckets := newReplica(1, []int{30, 40})
		h := mustPowerSGD(PowerSGDConfig{Rank: 1, Start: 3, MinRate: 2})
		if err := h.Bind(ctx, comm, buckets); err != nil {
			return err
		}
		balance := make([]float64, 30*40)
		for step := range steps {
			fill(params, comm.Rank(), step)
			for i, g := range params[0].Grad {
				balance[i] += float64(g)
			}
			if err := reduceAll(ctx, comm, h, buckets); err != nil {
				return err
			}
			for i, g := range params[0].Grad {
				balance[i] -= float64(g)
			}
		}
		at := slices.IndexFunc(h.State(), func(s State) bool { return s.Name == "residual.p0" })
		for i, e := range h.State()[at].Value {
			balance[i] -= float64(e)
		}
		if err := mpi.AllReduce(ctx, comm, balance, mpi.Sum); err != nil {
			return err
		}
		for i, b := range balance {
			// Each step rounds a few times, at 2^-24 of residuals of up to 0.2.
			if math.Abs(b) > steps*float64(comm.Size())*0.2*0x1p-22 {
				return fmt.Errorf("element %d: %v is missing", i, b)
			}
		}
		return nil
	})
}

// Before the step at which PowerSGD starts, and always for tensors that it would not shrink, the mean has the bits that it has without a
// hook.
func TestPowerSGDIsPlainBeforeItsStart(t *testing.T) {
	onRanks(t, func(ctx context.Context, comm *mpi.Comm) error {
		params, buckets := newReplica(3, shapes...)
		h := mustPowerSGD(PowerSGDConfig{Rank: 1, Start: 2, MinRate: 1})
		if err := h.Bind(ctx, comm, buckets); err != nil {
			return err
		}
		for step := range 4 {
			fill(params, comm.Rank(), step)
			want := gradients(params)
			for i := range want {
				want[i] *= 1 / float32(comm.Size())
			}
			if err := mpi.AllReduce(ctx, comm, want, mpi.Sum); err != nil {
				return err
			}
			if err := reduceAll(ctx, comm, h, buckets); err != nil {
				return err
			}
			for _, p := range params {
				same := slices.Equal(p.Grad, want[:len(p.Grad)])
				want = want[len(p.Grad):]
				// PowerSGD shrinks p0, 20x30, and p2, 8x36. The other matrix is 1x5, too small.
				if plain := step < 2 || p.Name != "p0" && p.Name != "p2"; same != plain {
					return fmt.Errorf("step %d: %s is the plain mean: %v, want %v", step, p.Name, same, plain)
				}
			}
		}
		return nil
	})
}

// A step with a gradient that is not finite leaves the state as it was.
func TestPowerSGDForgetsWhatIsNotFinite(t *testing.T) {
	onWorld(t, 2, func(ctx context.Context, comm *mpi.Comm) error {
		params, buckets := newReplica(1, []int{30, 40})
		h := mustPowerSGD(PowerSGDConfig{Rank: 1, MinRate: 2})
		if err := h.Bind(ctx, comm, buckets); err != nil {
			return err
		}
		fill(params, comm.Rank(), 0)
		if err := reduceAll(ctx, comm, h, buckets); err != nil {
			return err
		}
		before := fmt.Sprint(h.State())
		for _, bad := range []float64{math.NaN(), math.Inf(1)} {
			fill(params, comm.Rank(), 1)
			params[0].Grad[77] = float32(bad)
			if err := reduceAll(ctx, comm, h, buckets); err != nil {
				return err
			}
			if slices.ContainsFunc(params[0].Grad, func(g float32) bool { return g == g }) {
				return fmt.Errorf("with %v, the mean is %v, want all NaN", bad, params[0].Grad)
			}
		}
		if fmt.Sprint(h.State()) != before {
			return fmt.Errorf("the state has changed")
		}
		return nil
	})
}

func TestPowerSGDConfigIsChecked(t *testing.T) {
	for word, cfg := range map[string]PowerSGDConfig{
		"rank":             {Rank: 0, MinRate: 2},
		"first step":       {Rank: 1, Start: -1, MinRate: 2},
		"first step is 16": {Rank: 1, Start: 1<<24 + 1, MinRate: 2},
		"compression rate": {Rank: 1, MinRate: math.NaN()},
	} {
		if _, err := NewPowerSGDHook(cfg); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%+v: error %v, want one of the %s", cfg, err, word)
		}
	}
}

// BenchmarkHooks reduces a 512 x 784 gradient between two ranks, that of the first layer of BenchmarkProcesses's MLP.
func BenchmarkHooks(b *testing.B) {
	for name, newHook := range hooks {
		b.Run(name, func(b *testing.B) {
			for _, err := range ranks(b, 2, func(ctx context.Context, comm *mpi.Comm) error {
				p := &nn.Param{Name: "w", Shape: []int{512, 784}, Grad: make([]float32, 512*784)}
				buckets, h := newBuckets([]*nn.Param{p}, 1), newHook()
				if err := h.Bind(ctx, comm, buckets); err != nil {
					return err
				}
				fill([]*nn.Param{p}, comm.Rank(), 0)
				if comm.Rank() == 0 {
					b.SetBytes(int64(4 * len(p.Grad)))
					b.ResetTimer()
				}
				for range b.N {
					if err := reduceAll(ctx, comm, h, buckets); err != nil {
						return err
					}
				}
				return nil
			}) {
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The vectors that orthonormalize does not set to zero are orthonormal, for any input.
func TestOrthonormalizeGivesOrthonormalVectors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "n")
		count := rapid.IntRange(1, n).Draw(t, "count")
		independent := rapid.IntRange(0, count).Draw(t, "independent") // the other vectors are sums of these
		exponent := rapid.IntRange(-90, 90).Draw(t, "exponent")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		v := make([]float32, n*count)
		for k := range count {
			x := v[k*n : (k+1)*n]
			for i := range x {
				if k < independent {
					x[i] = float32(math.Ldexp(r.NormFloat64(), exponent))
				}
			}
			for j := 0; k >= independent && j < independent; j++ {
				for i := range x {
					x[i] += float32(j+1) * v[j*n+i]
				}
			}
		}
		fresh := rapid.Bool().Draw(t, "fresh")
		if fresh {
			orthonormalize(v, n, func(_ int, dst []float32) {
				for i := range dst {
					dst[i] = float32(r.NormFloat64())
				}
			})
		} else {
			orthonormalize(v, n, nil)
		}
		for k := range count {
			x := v[k*n : (k+1)*n]
			length := vec.Dot(x, x)
			if length == 0 && !fresh && k >= independent {
				continue
			}
			// The vector has n values near 1/sqrt(n), rounded at 2^-24, and the last projection doubles that error.
			if math.Abs(length-1) > 1e-6 {
				t.Fatalf("vector %d of %d: squared length %v", k, count, length)
			}
			for j := range k {
				if d := vec.Dot(x, v[j*n:(j+1)*n]); math.Abs(d) > 3e-6 {
					t.Fatalf("vectors %d and %d: product %v", j, k, d)
				}
			}
		}
	})
}

func TestOrthonormalizeEndsOnNaN(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		v := []float32{1, 2, float32(bad), 4, 5, 6}
		orthonormalize(v, 3, nil) // must return
		if s := vec.Dot(v, v); s == s {
			t.Errorf("%v is gone: %v", bad, v)
		}
	}
}

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
					// Both round products of 30 to 40 terms at 2^-24. In each step a power iteration magnifies that by the ratio of
					// singular values, less than 2 for random matrices.
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
