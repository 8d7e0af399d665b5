package ddp

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"ddpbatch/mpi"
)

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
func TestHooksConverge(t *testing.T) { // without the race detector
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
