package ddp

import (
	"context"
	"math"
	"runtime"
	"testing"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// steps takes n steps whose Backward costs nothing, as far as communication is concerned.
func steps(ctx context.Context, d *DDP, pass *nn.Pass, params []*nn.Param, sums []float64, n int) error {
	for range n {
		d.ZeroGrad()
		d.Begin(ctx, pass, sums)
		for i := len(params) - 1; i >= 0; i-- {
			pass.Done(params[i])
		}
		if err := d.Finish(); err != nil {
			return err
		}
	}
	return nil
}

// In steady state a step allocates nothing, on any rank. All mallocs of the process are counted: a few are the runtime's and the
// test's own, and one a step and rank would be 200.
func TestStepDoesNotAllocate(t *testing.T) { // without the race detector
	for _, over := range []string{"tcp", "shm"} {
		for name, cfg := range map[string]Config{
			"overlap":     {Overlap: true},
			"no overlap":  {},
			"find unused": {Overlap: true, FindUnused: true},
			"uneven":      {Overlap: true, Uneven: DivideByActive},
			"hook": {Overlap: true, Hook: fakeHook{reduce: func(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
				return mpi.AllReduce(ctx, comm, b.Data, mpi.Sum)
			}}},
		} {
			cfg.FirstBucketBytes, cfg.BucketBytes, cfg.BroadcastBuffers = 1<<10, 1<<14, true
			const n, rounds = 100, 5
			must(t, ranksOn(t, over, 2, func(ctx context.Context, comm *mpi.Comm) error {
				pass, params, sums := new(nn.Pass), fakeModel(100, 5000, 100, 5000), make([]float64, 3)
				state := []*nn.Buffer{{Name: "mean", Shape: []int{20}, Value: make([]float32, 20)}}
				d, err := New(ctx, comm, params, state, cfg)
				if err != nil {
					return err
				}
				synchronised := func(steady int) error {
					for range steady {
						if err := d.SyncBuffers(ctx); err != nil {
							return err
						}
						if err := steps(ctx, d, pass, params, sums, 1); err != nil {
							return err
						}
					}
					return nil
				}
				if err := synchronised(20); err != nil {
					return err
				}
				// What else the process does only adds: the least of the rounds counts. All ranks go through all of them.
				least := uint64(math.MaxUint64)
				for range rounds {
					var before, after runtime.MemStats
					if comm.Rank() == 0 {
						runtime.ReadMemStats(&before)
					}
					if err := synchronised(n); err != nil {
						return err
					}
					if comm.Rank() == 0 {
						runtime.ReadMemStats(&after)
						least = min(least, after.Mallocs-before.Mallocs)
					}
				}
				if comm.Rank() == 0 && least > n/2 && !raceEnabled {
					t.Errorf("over %s, %s: %v allocations in %d steps of two ranks", over, name, least, n)
				}
				return nil
			}))
		}
	}
}

// The communication of an MLP 784-512-256-10, 2.1 MB of gradients in one bucket, between two ranks of this process.
func BenchmarkStep(b *testing.B) {
	for _, over := range []string{"shm", "tcp"} {
		b.Run(over, func(b *testing.B) {
			must(b, ranksOn(b, over, 2, func(ctx context.Context, comm *mpi.Comm) error {
				params := newModel(0, 784, 512, 256, 10).Params()
				d, err := New(ctx, comm, params, nil, DefaultConfig())
				if err != nil {
					return err
				}
				if err := steps(ctx, d, new(nn.Pass), params, make([]float64, 2), 2); err != nil {
					return err
				}
				if comm.Rank() == 0 {
					b.ReportAllocs()
					b.SetBytes(int64(4 * len(d.arena)))
					b.ResetTimer()
				}
				return steps(ctx, d, new(nn.Pass), params, make([]float64, 2), b.N)
			}))
		})
	}
}
