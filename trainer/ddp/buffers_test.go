package ddp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

var _ nn.Reducer = (*SyncBatchNorm)(nil)

// Sum works while the Comm that NewSyncBatchNorm got is in use for an all-reduce, also if ranks start the two in different orders.
func TestSyncBatchNormSums(t *testing.T) {
	onRanks(t, func(ctx context.Context, comm *mpi.Comm) error {
		s, err := NewSyncBatchNorm(ctx, comm)
		if err != nil {
			return err
		}
		for step := range 20 {
			gradient := []float32{1}
			x := []float64{float64(comm.Rank()), float64(step), 0.5}
			var request *mpi.Request
			if comm.Rank()%2 == 0 {
				request = mpi.IAllReduce(ctx, comm, gradient, mpi.Sum)
				s.Sum(x)
			} else {
				s.Sum(x)
				request = mpi.IAllReduce(ctx, comm, gradient, mpi.Sum)
			}
			if err := errors.Join(request.Wait(ctx), s.Err()); err != nil {
				return err
			}
			w := comm.Size()
			if x[0] != float64(w*(w-1)/2) || x[1] != float64(w*step) || x[2] != float64(w)/2 || gradient[0] != float32(w) {
				return fmt.Errorf("sums are %v and %v", x, gradient)
			}
		}
		return nil
	})
}

// After an error Sum gives only NaN, and Err keeps the first error.
func TestSyncBatchNormFails(t *testing.T) {
	onWorld(t, 2, func(ctx context.Context, comm *mpi.Comm) error {
		ending, end := context.WithCancel(ctx)
		defer end()
		s, err := NewSyncBatchNorm(ending, comm)
		if err != nil {
			return err
		}
		end()
		for range 2 {
			x := []float64{1, 2}
			s.Sum(x)
			if !math.IsNaN(x[0]) || !math.IsNaN(x[1]) || s.Err() == nil {
				return fmt.Errorf("the sum is %v, the error %v", x, s.Err())
			}
		}
		first := s.Err()
		s.Sum(nil)
		if s.Err() != first {
			return fmt.Errorf("error %v, was %v", s.Err(), first)
		}
		return nil
	})
}

// If a DDP fails on one rank while others wait in Sum, as Forward does, Finish returns the reason on all ranks.
func TestSyncBatchNormFailsWithTheDDP(t *testing.T) {
	for _, over := range transports {
		for name, want := range map[string]string{"unused": "has not used", "hook": "out of bits"} {
			t.Run(over+"/"+name, func(t *testing.T) {
				testkit.Within(t, testkit.Patience, func() {
					failures(t, ranksOn(t, over, 3, func(ctx context.Context, comm *mpi.Comm) error {
						params := fakeModel(2, 3)
						s, err := NewSyncBatchNorm(ctx, comm)
						if err != nil {
							return err
						}
						cfg := Config{Overlap: true, FirstBucketBytes: 1, SyncBatchNorm: s}
						if name == "hook" {
							cfg.Hook = fakeHook{
								reduce: func(context.Context, *mpi.Comm, *Bucket) error { return errors.New("out of bits") }}
						}
						d, err := New(ctx, comm, params, nil, cfg)
						if err != nil {
							return err
						}
						pass := new(nn.Pass)
						d.Begin(ctx, pass, nil)
						if comm.Rank() > 0 {
							s.Sum(make([]float64, 2))
						} else if name == "hook" {
							backward(pass, params, comm.Rank(), 0)
						}
						return d.Finish()
					}), want)
				})
			})
		}
	}
}

// A rank that gets a failure from New passes it on to the ranks that wait in Sum.
func TestSyncBatchNormFailsWithNew(t *testing.T) {
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			var made sync.WaitGroup
			made.Add(3)
			reported := make(chan struct{})
			testkit.Within(t, testkit.Patience, func() {
				failures(t, ranksOn(t, over, 3, func(ctx context.Context, comm *mpi.Comm) error {
					if comm.Rank() == 2 {
						defer close(reported)
					}
					s, err := NewSyncBatchNorm(ctx, comm)
					made.Done()
					if err != nil {
						return err
					}
					switch comm.Rank() {
					case 0:
						made.Wait()
						breakComm(comm, errors.New("out of bits"))
						<-reported
						return comm.Err()
					case 1:
						_, err := New(ctx, comm, fakeModel(2), nil, Config{SyncBatchNorm: s})
						return err
					}
					s.Sum(make([]float64, 2))
					return s.Err()
				}), "out of bits")
			})
		})
	}
}

// If a Sum has failed, gradients are NaN, so the step fails on all ranks.
func TestStepFailsWithSyncBatchNorm(t *testing.T) {
	failures(t, ranksOn(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
		params := fakeModel(2)
		ending, end := context.WithCancel(ctx)
		defer end()
		s, err := NewSyncBatchNorm(ending, comm)
		if err != nil {
			return err
		}
		d, err := New(ctx, comm, params, nil, Config{Overlap: true, SyncBatchNorm: s})
		if err != nil {
			return err
		}
		pass := new(nn.Pass)
		d.Begin(ctx, pass, nil)
		if comm.Rank() == 1 {
			end()
			s.Sum(make([]float64, 2))
		}
		backward(pass, params, comm.Rank(), 0)
		return d.Finish()
	}), "context canceled")
}
