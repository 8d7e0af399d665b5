package ddp

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

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

// Parameters trained with a Hook have the same bits on all ranks, whatever the sizes of buckets, and whether or not the run was stopped
// and resumed.
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

// regression holds the rows that one rank has of y = x W + b + noise.
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

// loss returns the mean squared error and adds its gradient to dw and db.
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

// With each hook, plain gradient descent reaches the loss that it reaches without a hook, within 1 %.
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
				// The noise has a variance of 0.09, and the fit absorbs a part of it.
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
