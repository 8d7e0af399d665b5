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

// hooks are all there are, with the settings of tests: PowerSGD begins at the second step and takes every matrix that shrinks at all.
var hooks = map[string]func() Hook{
	"float16":  NewFloat16Hook,
	"bfloat16": NewBFloat16Hook,
	"int8":     NewInt8Hook,
	"powersgd": func() Hook { return mustPowerSGD(PowerSGDConfig{Rank: 2, Start: 1, MinRate: 1, Seed: 7}) },
}

func mustPowerSGD(cfg PowerSGDConfig) Hook {
	h, err := NewPowerSGDHook(cfg)
	if err != nil {
		panic(err)
	}
	return h
}

// The first step of every hook is near the mean: PowerSGD's is plain.
func TestFirstStepOfHooksIsNearTheMean(t *testing.T) {
	// Relative to the largest magnitude, about 4 standard deviations: 2^-11 and 2^-8 for each rounding of at most log2(4)+1; 1/254 twice for int8.
	tolerance := map[string]float64{"float16": 4 * 0x1p-11, "bfloat16": 4 * 0x1p-8, "int8": 2.01 / 254, "powersgd": 4 * 0x1p-24}
	for name, newHook := range hooks {
		t.Run(name, func(t *testing.T) {
			onRanks(t, func(ctx context.Context, comm *mpi.Comm) error {
				params, buckets := newReplica(2, shapes...)
				h := newHook()
				if err := h.Bind(ctx, comm, buckets); err != nil {
					return err
				}
				want, top := make([]float64, len(gradients(params))), 0.0
				for rank := range comm.Size() {
					fill(params, rank, 0)
					for i, g := range gradients(params) {
						want[i] += float64(g) / float64(comm.Size())
						top = max(top, math.Abs(float64(g)))
					}
				}
				fill(params, comm.Rank(), 0)
				if err := reduceAll(ctx, comm, h, buckets); err != nil {
					return err
				}
				for i, g := range gradients(params) {
					if e := math.Abs(float64(g) - want[i]); !(e <= tolerance[name]*top) {
						return fmt.Errorf("gradient %d is %v, the mean %v", i, g, want[i])
					}
				}
				return nil
			})
		})
	}
}

func TestHooksGiveAllRanksTheSameBits(t *testing.T) { // without the race detector
	for name, newHook := range hooks {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(ctx context.Context, comm *mpi.Comm) error {
				params, buckets := newReplica(2, shapes...)
				h := newHook()
				if err := h.Bind(ctx, comm, buckets); err != nil {
					return err
				}
				for step := range 5 {
					fill(params, comm.Rank(), step)
					if err := reduceAll(ctx, comm, h, buckets); err != nil {
						return err
					}
					if err := sameBits(ctx, comm, fmt.Sprint("step ", step), gradients(params)); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// What is not a number on one rank is none on all, and is gone a step later.
func TestHooksPassOnWhatIsNotFinite(t *testing.T) {
	for name, newHook := range hooks {
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			t.Run(fmt.Sprint(name, bad), func(t *testing.T) {
				onRanks(t, func(ctx context.Context, comm *mpi.Comm) error {
					params, buckets := newReplica(2, shapes...)
					h := newHook()
					if err := h.Bind(ctx, comm, buckets); err != nil {
						return err
					}
					for step := range 4 {
						fill(params, comm.Rank(), step)
						if step == 2 && comm.Rank() == comm.Size()-1 {
							params[0].Grad[100], params[1].Grad[3] = float32(bad), float32(bad)
						}
						if err := reduceAll(ctx, comm, h, buckets); err != nil {
							return err
						}
						for i, p := range params {
							lost := slices.ContainsFunc(p.Grad, func(g float32) bool { return math.IsNaN(float64(g)) || math.IsInf(float64(g), 0) })
							if bad := step == 2 && i < 2; bad != lost {
								return fmt.Errorf("step %d, %s: not finite: %v, want %v", step, p.Name, lost, bad)
							}
						}
						if err := sameBits(ctx, comm, fmt.Sprint("step ", step), gradients(params)); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}

// Gradients go on with the same bits in a run that was stopped in the middle and restored.
func TestRestoredHooksGoOnAsBefore(t *testing.T) {
	for name, newHook := range hooks {
		t.Run(name, func(t *testing.T) {
			onRanks(t, func(ctx context.Context, comm *mpi.Comm) error {
				var saved []State
				run := func(first, last int) ([]float32, error) {
					params, buckets := newReplica(2, shapes...)
					h := newHook()
					if err := h.Bind(ctx, comm, buckets); err != nil {
						return nil, err
					}
					if first > 0 {
						if err := restore(h.State(), saved); err != nil {
							return nil, err
						}
					}
					var all []float32
					for step := first; step < 6; step++ {
						if step == last {
							saved = copyStates(h.State())
						}
						fill(params, comm.Rank(), step)
						if err := reduceAll(ctx, comm, h, buckets); err != nil {
							return nil, err
						}
						if step >= 3 {
							all = append(all, gradients(params)...)
						}
					}
					return all, nil
				}
				want, err := run(0, 3)
				if err != nil {
					return err
				}
				got, err := run(3, -1)
				if err != nil {
					return err
				}
				if digestOf(got) != digestOf(want) {
					return fmt.Errorf("the restored run has other gradients")
				}
				return nil
			})
		})
	}
}

// Which bucket a parameter is in does not matter, bit for bit: a resumed run begins with other buckets than it ended with.
func TestHooksGiveTheSameInAnyBuckets(t *testing.T) {
	for name, newHook := range hooks {
		t.Run(name, func(t *testing.T) {
			onRanks(t, func(ctx context.Context, comm *mpi.Comm) error {
				var results []uint32
				for perBucket := 1; perBucket <= len(shapes); perBucket++ {
					params, _ := newReplica(1, shapes...)
					h := newHook()
					for step := range 4 {
						order := slices.Clone(params)
						if step%2 == 1 {
							slices.Reverse(order)
						}
						buckets := newBuckets(order, perBucket)
						if err := h.Bind(ctx, comm, buckets); err != nil {
							return err
						}
						fill(params, comm.Rank(), step)
						if err := reduceAll(ctx, comm, h, buckets); err != nil {
							return err
						}
					}
					results = append(results, digestOf(gradients(params)))
				}
				if len(slices.Compact(results)) != 1 {
					return fmt.Errorf("gradients differ with the parameters to a bucket: %x", results)
				}
				return nil
			})
		})
	}
}

// What is kept for parameters stays with them when these are dealt to buckets anew.
func TestHooksKeepStateInNewBuckets(t *testing.T) {
	for name, newHook := range hooks {
		t.Run(name, func(t *testing.T) {
			onWorld(t, 2, func(ctx context.Context, comm *mpi.Comm) error {
				params, buckets := newReplica(2, shapes...)
				h := newHook()
				if err := h.Bind(ctx, comm, buckets); err != nil {
					return err
				}
				for step := range 2 {
					fill(params, comm.Rank(), step)
					if err := reduceAll(ctx, comm, h, buckets); err != nil {
						return err
					}
				}
				before := copyStates(h.State())
				slices.Reverse(params)
				buckets = newBuckets(params, 4)
				if err := h.Bind(ctx, comm, buckets); err != nil {
					return err
				}
				if after := h.State(); fmt.Sprint(after) != fmt.Sprint(before) {
					return fmt.Errorf("state is\n%v, was\n%v", after, before)
				}
				fill(params, comm.Rank(), 2)
				if err := reduceAll(ctx, comm, h, buckets); err != nil {
					return err
				}
				return sameBits(ctx, comm, "gradients", gradients(params))
			})
		})
	}
}

func copyStates(states []State) []State {
	states = slices.Clone(states)
	for i := range states {
		states[i].Value = slices.Clone(states[i].Value)
	}
	return states
}

// restore copies the values of saved States to those of the same names and shapes.
func restore(states, saved []State) error {
	if len(states) != len(saved) {
		return fmt.Errorf("%d states, %d were saved", len(states), len(saved))
	}
	for i, s := range states {
		if s.Name != saved[i].Name || !slices.Equal(s.Shape, saved[i].Shape) || len(s.Value) != len(saved[i].Value) {
			return fmt.Errorf("state %d is %s %v, %s %v was saved", i, s.Name, s.Shape, saved[i].Name, saved[i].Shape)
		}
		copy(s.Value, saved[i].Value)
	}
	return nil
}

func TestHooksDoNotAllocate(t *testing.T) { // without the race detector
	comm := mpi.Self()
	for name, newHook := range hooks {
		params, buckets := newReplica(2, shapes...)
		h := newHook()
		if err := h.Bind(t.Context(), comm, buckets); err != nil {
			t.Fatal(err)
		}
		step := func() {
			for _, p := range params {
				for i := range p.Grad {
					p.Grad[i] = float32(i%7) - 3
				}
			}
			if err := reduceAll(t.Context(), comm, h, buckets); err != nil {
				t.Fatal(err)
			}
		}
		step()
		if n := testing.AllocsPerRun(100, step); n != 0 {
			t.Errorf("%s: %v allocations a step, want none", name, n)
		}
	}
}

// hooked is a rank that trains an MLP with a Hook by gradient descent.
type hooked struct {
	model *nn.Sequential
	hook  Hook
	ddp   *DDP
}

func newHooked(ctx context.Context, comm *mpi.Comm, h Hook, bucketBytes int) (*hooked, error) {
	src := rand.New(rand.NewPCG(1, 2))
	m := &hooked{hook: h, model: nn.NewSequential(nn.NewLinear(20, 40, src), nn.NewReLU(), nn.NewLinear(40, 16, src))}
	cfg := DefaultConfig()
	cfg.FirstBucketBytes, cfg.BucketBytes, cfg.Hook = bucketBytes, bucketBytes, h
	var err error
	m.ddp, err = New(ctx, comm, m.model.Params(), nil, cfg)
	return m, err
}

func (m *hooked) train(ctx context.Context, comm *mpi.Comm, first, end int) error {
	var loss nn.MSE
	for step := first; step < end; step++ {
		data := rand.New(rand.NewPCG(uint64(step), uint64(comm.Rank())))
		x, y := randomMatrix(data, 5, 20), randomMatrix(data, 5, 16)
		pass := &nn.Pass{Training: true}
		m.ddp.ZeroGrad()
		_, dy := loss.Loss(m.model.Forward(pass, x), y)
		m.ddp.Begin(ctx, pass, nil)
		m.model.Backward(pass, dy, false)
		if err := m.ddp.Finish(); err != nil {
			return err
		}
		for _, p := range m.model.Params() {
			for i, g := range p.Grad {
				p.Value[i] -= float32(0.5 * g)
			}
		}
	}
	return nil
}

// Parameters that were trained with a Hook have the same bits on all ranks, whatever the buckets, and when the run was stopped in between.
func TestBitsWithHooksAreEqualOnAllRanks(t *testing.T) { // without the race detector
	const steps = 5
	for name, newHook := range hooks {
		t.Run(name, func(t *testing.T) {
			onRanks(t, func(ctx context.Context, comm *mpi.Comm) error {
				var want uint32
				for _, bucketBytes := range []int{1, 1000, 1 << 20} {
					for stop := 1; stop <= steps; stop += 2 {
						m, err := newHooked(ctx, comm, newHook(), bucketBytes)
						if err != nil {
							return err
						}
						if err := m.train(ctx, comm, 0, stop); err != nil {
							return err
						}
						resumed, err := newHooked(ctx, comm, newHook(), bucketBytes)
						if err != nil {
							return err
						}
						for i, p := range resumed.model.Params() {
							copy(p.Value, m.model.Params()[i].Value)
						}
						if err := restore(resumed.hook.State(), m.hook.State()); err != nil {
							return err
						}
						if err := resumed.train(ctx, comm, stop, steps); err != nil {
							return err
						}
						got := values(resumed.model.Params())
						if err := sameBits(ctx, comm, "parameters", got); err != nil {
							return err
						}
						if want == 0 {
							want = digestOf(got)
						}
						if digestOf(got) != want {
							return fmt.Errorf("buckets of %d bytes, stopped after step %d: other parameters", bucketBytes, stop)
						}
					}
				}
				return nil
			})
		})
	}
}

// regression is y = x W + b + noise, with rows of one rank's own.
type regression struct {
	in, out, rows int
	x, y          []float64
}

func newRegression(rank int) *regression {
	truth, r := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(2, uint64(rank)))
	g := &regression{in: 12, out: 8, rows: 40}
	w := make([]float64, g.in*g.out)
	for i := range w {
		w[i] = truth.NormFloat64()
	}
	for range g.rows {
		row := make([]float64, g.in)
		for i := range row {
			row[i] = r.NormFloat64()
		}
		for j := range g.out {
			y := 0.5 + 0.3*r.NormFloat64()
			for i, v := range row {
				y += v * w[i*g.out+j]
			}
			g.y = append(g.y, y)
		}
		g.x = append(g.x, row...)
	}
	return g
}

// loss is the mean square error, and adds its gradient.
func (g *regression) loss(w, b, dw, db []float32) float64 {
	sum, n := 0.0, float64(g.rows*g.out)
	for i := range g.rows {
		x := g.x[i*g.in : (i+1)*g.in]
		for j := range g.out {
			e := float64(b[j]) - g.y[i*g.out+j]
			for k, v := range x {
				e += v * float64(w[k*g.out+j])
			}
			sum += e * e / n
			db[j] += float32(2 * e / n)
			for k, v := range x {
				dw[k*g.out+j] += float32(2 * e * v / n)
			}
		}
	}
	return sum
}

// With each hook, plain gradient descent comes to the loss that it comes to without one, within 1 %.
func TestHooksConvergeToTheSameLoss(t *testing.T) { // without the race detector
	const steps, lr = 150, 0.8
	all := map[string]func() Hook{"rank 1": func() Hook { return mustPowerSGD(PowerSGDConfig{Rank: 1, Start: 5, MinRate: 2}) }}
	for name, newHook := range hooks {
		all[name] = newHook
	}
	for name, newHook := range all {
		t.Run(name, func(t *testing.T) {
			onRanks(t, func(ctx context.Context, comm *mpi.Comm) error {
				train := func(h Hook) (float64, error) {
					data := newRegression(comm.Rank())
					params, buckets := newReplica(2, []int{data.in, data.out}, []int{data.out})
					if err := h.Bind(ctx, comm, buckets); err != nil {
						return 0, err
					}
					w, b := params[0], params[1]
					for range steps {
						clear(w.Grad)
						clear(b.Grad)
						data.loss(w.Value, b.Value, w.Grad, b.Grad)
						if err := reduceAll(ctx, comm, h, buckets); err != nil {
							return 0, err
						}
						for _, p := range params {
							for i, g := range p.Grad {
								p.Value[i] -= lr * g
							}
						}
					}
					loss := []float64{data.loss(w.Value, b.Value, w.Grad, b.Grad)}
					err := mpi.AllReduce(ctx, comm, loss, mpi.Avg)
					return loss[0], err
				}
				plain, err := train(mustPowerSGD(PowerSGDConfig{Rank: 1, Start: steps, MinRate: 1}))
				if err != nil {
					return err
				}
				got, err := train(newHook())
				if err != nil {
					return err
				}
				// The noise has a variance of 0.09, of which one in four goes into 13 coefficients of 40 rows.
				if plain > 0.09 || plain < 0.04 {
					return fmt.Errorf("without a hook, the loss is %v", plain)
				}
				if math.Abs(got/plain-1) > 0.01 {
					return fmt.Errorf("the loss is %v, %v without a hook", got, plain)
				}
				return nil
			})
		})
	}
}

// Between two ranks, each value is halved, rounded and added, with one more rounding.
func TestNarrowHooksRoundOnceMore(t *testing.T) {
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
func TestFloat16OverflowsByTheMean(t *testing.T) {
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
