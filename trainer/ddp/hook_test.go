package ddp

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ddpbatch/mpi"
)

// hooks holds every kind of Hook, with settings for tests: PowerSGD begins at the second step and compresses every matrix that gets
// smaller by it.
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

// The first step of every hook gives nearly the mean. PowerSGD does not compress in its first step.
func TestFirstStepOfHooksIsNearTheMean(t *testing.T) {
	// The tolerances are relative to the largest magnitude, and about 4 standard deviations wide. float16 and bfloat16 round at most
	// log2(4)+1 times, at 2^-11 and 2^-8; int8 rounds twice, at 1/254.
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

// A gradient that is not finite on one rank is not finite on any rank, with the same bits, and is finite again a step later.
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
							lost := slices.ContainsFunc(p.Grad,
								func(g float32) bool { return math.IsNaN(float64(g)) || math.IsInf(float64(g), 0) })
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

// A run that was stopped in the middle and restored has gradients with the same bits as a run that never stopped.
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

// Gradients have the same bits whichever bucket a parameter is in. This matters since a resumed run begins with other buckets than the
// stopped run ended with.
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

// The state that a hook keeps for a parameter stays with the parameter when parameters move to other buckets.
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

// restore copies the values of saved to states, which must have the same names and shapes in the same order.
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

// Between two ranks, float16 and bfloat16 halve each value, round it, add the two and round the sum.
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

// float16 overflows if the mean, not the gradient of one rank, is too large. It rounds magnitudes from 65,520 on to infinity.
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
