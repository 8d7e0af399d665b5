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

// usedBy takes one step of a model of four parameters, each in a bucket of its own. used reports whether a rank uses a parameter.
func usedBy(ctx context.Context, comm *mpi.Comm, cfg Config, step int, used func(rank, param int) bool) (*DDP, []*nn.Param, error) {
	params := fakeModel(4, 4, 4, 4)
	cfg.FirstBucketBytes, cfg.BucketBytes = 1, 1
	d, err := New(ctx, comm, params, nil, cfg)
	if err != nil {
		return nil, nil, err
	}
	d.ZeroGrad()
	pass := new(nn.Pass)
	d.Begin(ctx, pass, nil)
	for i, p := range params {
		if used(comm.Rank(), i) {
			backward(pass, params[i:i+1], comm.Rank(), step)
		} else if p.HasGrad {
			return nil, nil, fmt.Errorf("%s has a gradient before the step", p.Name)
		}
	}
	return d, params, d.Finish()
}

// If a rank has not used a parameter, all ranks get an error that names the parameter and the rank.
func TestUnusedParameterIsAnError(t *testing.T) {
	for _, overlap := range []bool{true, false} {
		for _, over := range transports {
			for rank, err := range ranksOn(t, over, 3, func(ctx context.Context, comm *mpi.Comm) error {
				_, _, err := usedBy(ctx, comm, Config{Overlap: overlap}, 0, func(rank, param int) bool { return rank != 1 || param != 2 })
				return err
			}) {
				if err == nil || !strings.Contains(err.Error(), "has not used p2 on rank 1") {
					t.Errorf("over %s, overlap %t: rank %d: error %v, want one that names p2 of rank 1", over, overlap, rank, err)
				}
			}
		}
	}
}

func TestUnusedOnAllRanksIsAnError(t *testing.T) {
	for _, world := range []int{1, 2} {
		for rank, err := range ranksOn(t, "local", world, func(ctx context.Context, comm *mpi.Comm) error {
			_, _, err := usedBy(ctx, comm, DefaultConfig(), 0, func(rank, param int) bool { return param != 1 && param != 3 })
			return err
		}) {
			if err == nil || !strings.Contains(err.Error(), "has not used p1, p3 on rank") {
				t.Errorf("rank %d: error %v, want one that names p1 and p3", rank, err)
			}
		}
	}
}

// With FindUnused a rank that has not used a parameter counts as zero in the mean.
// A parameter that no rank has used has no gradient on any rank.
func TestFindUnusedCountsUnusedAsZero(t *testing.T) {
	used := func(rank, param int) bool { return param == 0 || param == 1 && rank == 0 || param == 2 && rank > 0 }
	for _, overlap := range []bool{true, false} {
		everywhere(t, func(ctx context.Context, comm *mpi.Comm) error {
			d, params, err := usedBy(ctx, comm, Config{FindUnused: true, Overlap: overlap}, 0, used)
			if err != nil {
				return err
			}
			for i, p := range params {
				any, sum := false, make([]float32, 4)
				for rank := range comm.Size() {
					if used(rank, i) {
						any = true
					}
				}
				if p.HasGrad != any {
					return fmt.Errorf("%s has a gradient: %t, used somewhere: %t", p.Name, p.HasGrad, any)
				}
				if !any {
					if err := expect(p, sum); err != nil {
						return err
					}
				}
			}
			if err := expect(params[0], meanGradient(params[0], comm.Size(), 0)); err != nil {
				return err
			}
			one := localGradient(params[1], 0, 0)
			for i := range one {
				one[i] *= 1 / float32(comm.Size())
			}
			if err := expect(params[1], one); err != nil {
				return err
			}
			d.ZeroGrad()
			for _, p := range params {
				if p.HasGrad {
					return fmt.Errorf("%s has a gradient after ZeroGrad", p.Name)
				}
			}
			return nil
		})
	}
}

// It is an error to use a parameter more often than New lists it, since that would change gradients that are already being sent.
func TestParameterUsedTooOftenIsAnError(t *testing.T) {
	for rank, err := range ranksOn(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
		params := fakeModel(4, 4)
		d, err := New(ctx, comm, params, nil, DefaultConfig())
		if err != nil {
			return err
		}
		pass := new(nn.Pass)
		d.Begin(ctx, pass, nil)
		backward(pass, params, comm.Rank(), 0)
		if comm.Rank() == 1 {
			pass.Done(params[0])
		}
		return d.Finish()
	}) {
		if err == nil || !strings.Contains(err.Error(), "has used p0 more than 1 times") {
			t.Errorf("rank %d: error %v, want one that names p0", rank, err)
		}
	}
}

// The error of a parameter that is used less often than New lists it names the parameter and the number of uses.
func TestParameterUsedTooSeldomIsNamed(t *testing.T) {
	params := fakeModel(4, 4)
	d, err := New(t.Context(), mpi.Self(), []*nn.Param{params[0], params[1], params[0]}, nil, DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	pass := new(nn.Pass)
	d.Begin(t.Context(), pass, nil)
	backward(pass, params[:1], 0, 0)
	if err := d.Finish(); err == nil || !strings.Contains(err.Error(), "has not used p0 (1 times of 2), p1 on rank 0") {
		t.Errorf("error %v, want one with how often p0 was used", err)
	}
}

// A hook passes on what it has kept back of a parameter's gradients in later steps, even if no rank uses the parameter in them. All that
// was applied, plus the residual at the end, is the sum of the gradients. A parameter that was never used has a gradient of zeros.
func TestUnusedParametersGetWhatHooksKeptBack(t *testing.T) {
	for name, newHook := range map[string]func() Hook{
		"int8": NewInt8Hook, "PowerSGD": func() Hook { return mustPowerSGD(PowerSGDConfig{Rank: 1, MinRate: 1, Seed: 7}) },
	} {
		t.Run(name, func(t *testing.T) {
			must(t, ranksOn(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
				params, _ := newReplica(1, []int{8, 9}, []int{8, 9}, []int{3})
				h := newHook()
				d, err := New(ctx, comm, params, nil, Config{FindUnused: true, Hook: h})
				if err != nil {
					return err
				}
				applied, sums := make([]float64, 72), make([]float64, 72) // sums is the mean gradient, less the residual at the end
				for step := range 4 {
					d.ZeroGrad()
					pass := new(nn.Pass)
					d.Begin(ctx, pass, nil)
					if step == 0 {
						fill(params[:1], comm.Rank(), step)
						for i, g := range params[0].Grad {
							sums[i] = float64(g) / 2
						}
						pass.Done(params[0])
					}
					fill(params[2:], comm.Rank(), step)
					pass.Done(params[2])
					if err := d.Finish(); err != nil {
						return err
					}
					if step < 2 && !params[0].HasGrad {
						return fmt.Errorf("step %d: there is no gradient of p0", step)
					}
					for i, g := range params[0].Grad {
						if g != 0 && !params[0].HasGrad {
							return fmt.Errorf("step %d: the gradient %v is nobody's", step, g)
						}
						applied[i] += float64(g)
					}
					if params[1].HasGrad || slices.ContainsFunc(params[1].Grad, nonzero) {
						return fmt.Errorf("step %d: a gradient of a parameter that nobody ever uses is %v", step, params[1].Grad)
					}
					if err := sameBits(ctx, comm, "what is applied", params[0].Grad); err != nil {
						return err
					}
				}
				for _, s := range h.State() {
					if s.Name == "residual.p0" {
						for i, e := range s.Value {
							sums[i] -= float64(e) / 2
						}
					}
				}
				if err := mpi.AllReduce(ctx, comm, sums, mpi.Sum); err != nil {
					return err
				}
				for i, want := range sums {
					// Gradients are below 0.1: float32 rounds each of a few sums and products to 2^-28 of them.
					if diff := math.Abs(applied[i] - want); diff > 20*0x1p-28 {
						return fmt.Errorf("element %d: %v was applied, want %v", i, applied[i], want)
					}
				}
				return nil
			}))
		})
	}
}
