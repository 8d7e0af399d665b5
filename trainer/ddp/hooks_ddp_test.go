package ddp

import (
	"context"
	"fmt"
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

// Parameters that were trained with a Hook have the same bits on all ranks, whatever the buckets, and when the run was stopped in between.
func TestBitsWithHooks(t *testing.T) { // without the race detector
	const steps = 5
	for name, newHook := range hooks {
		t.Run(name, func(t *testing.T) {
			onRanks(t, func(ctx context.Context, comm *mpi.Comm) error {
				var want uint64
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
