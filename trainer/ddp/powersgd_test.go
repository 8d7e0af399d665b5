package ddp

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// With the full rank, every matrix is its own approximation.
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

// A mean of the rank of the approximation is found within two steps, also when all gradients were zero for a time: then what is
// left from there makes a poor Q to begin with, but the second step makes up for it.
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
					want := size * (math.Sin(row)*math.Cos(2*col) + math.Sin(3*row)*math.Cos(col)) // rank 2: one to spare
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
				// What was left of the steps before is their rounding, a few times 2^-24 of 2.
				if math.Abs(m) > 1e-5*size+1e-6 {
					return fmt.Errorf("phase %d: element %d lacks %v", phase, i, m)
				}
			}
		}
		return nil
	})
}

// No gradient is lost: the means that were returned and the mean residual add up to all gradients.
func TestPowerSGDFeedback(t *testing.T) {
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

// Before the first step, and for vectors, the mean is that without a hook, bit for bit.
func TestPowerSGDPlain(t *testing.T) {
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
				// p0 and p2 shrink enough: 20x30 and 8x36. The other matrix is 1x5.
				if plain := step < 2 || p.Name != "p0" && p.Name != "p2"; same != plain {
					return fmt.Errorf("step %d: %s is the plain mean: %v, want %v", step, p.Name, same, plain)
				}
			}
		}
		return nil
	})
}

// After a gradient that was not finite, all goes on as if there had been none.
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

// A 512 x 784 gradient between two ranks, as the first layer of the benchmark's MLP has it.
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
