package ddp

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi"
	"ddpbatch/mpi/transport"
	"ddpbatch/trainer/nn"
)

// failing takes steps with three buckets until one fails.
func failing(ctx context.Context, comm *mpi.Comm, cfg Config) error {
	cfg.FirstBucketBytes, cfg.BucketBytes = 1, 1
	params := fakeModel(4, 4, 4)
	d, err := New(ctx, comm, params, nil, cfg)
	if err != nil {
		return err
	}
	return failingSteps(ctx, d, params, comm.Rank())
}

func failingSteps(ctx context.Context, d *DDP, params []*nn.Param, rank int) error {
	for step := range 100 {
		d.ZeroGrad()
		pass := new(nn.Pass)
		d.Begin(ctx, pass, []float64{1})
		backward(pass, params, rank, step)
		if err := d.Finish(); err != nil {
			return errors.Join(err, afterFailure(ctx, d, params, err))
		}
	}
	return nil
}

// afterFailure checks that every later call of a failed DDP returns the cause of the failure, and that the failed step has left no
// gradients.
func afterFailure(ctx context.Context, d *DDP, params []*nn.Param, cause error) error {
	for _, p := range params {
		if err := expect(p, make([]float32, len(p.Value))); err != nil || p.HasGrad {
			return fmt.Errorf("after the failure: %w, has a gradient: %t", err, p.HasGrad)
		}
	}
	d.ZeroGrad()
	pass := new(nn.Pass)
	d.Begin(ctx, pass, nil)
	backward(pass, params, 0, 0)
	if err := d.Finish(); err != cause {
		return fmt.Errorf("the next step: error %v, want %v", err, cause)
	}
	if err := d.SyncBuffers(ctx); err != cause {
		return fmt.Errorf("the next SyncBuffers: error %v, want %v", err, cause)
	}
	d.Close()
	return nil
}

func failures(t *testing.T, errs []error, want string) {
	t.Helper()
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "after the failure") ||
			strings.Contains(err.Error(), "the next") {
			t.Errorf("rank %d: error %v, want one with %q", rank, err, want)
		}
	}
}

// If a rank's context ends, in Backward or in a collective, the step fails on all ranks.
func TestContextEndsTheStepEverywhere(t *testing.T) {
	for _, over := range transports {
		for _, overlap := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%t", over, overlap), func(t *testing.T) {
				failures(t, ranksOn(t, over, 3, func(ctx context.Context, comm *mpi.Comm) error {
					ctx, cancel := context.WithCancel(ctx)
					defer cancel()
					params := fakeModel(4, 4)
					d, err := New(ctx, comm, params, nil, Config{FirstBucketBytes: 1, Overlap: overlap})
					if err != nil {
						return err
					}
					pass := new(nn.Pass)
					d.Begin(ctx, pass, nil)
					backward(pass, params[1:], comm.Rank(), 0)
					if comm.Rank() == 2 {
						cancel()
					}
					backward(pass, params[:1], comm.Rank(), 0)
					if err = d.Finish(); err == nil { // rank 2 may have sent all it had before its context ended
						err = failingSteps(ctx, d, params, comm.Rank())
						return err
					}
					return errors.Join(err, afterFailure(ctx, d, params, err))
				}), "context canceled")
			})
		}
	}
}

// A single rank waits for no other rank, but its step still fails if its context ends.
func TestContextEndsAWorldOfOne(t *testing.T) {
	params := fakeModel(4)
	d, err := New(t.Context(), mpi.Self(), params, nil, DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	pass := new(nn.Pass)
	d.Begin(ctx, pass, nil)
	backward(pass, params, 0, 0)
	if err := d.Finish(); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

// SyncBuffers may fail between two steps, when the buckets are about to be rebuilt. All ranks get the error.
func TestSyncBuffersFailsBetweenSteps(t *testing.T) {
	failures(t, ranksOn(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
		params := fakeModel(4, 4)
		mean := &nn.Buffer{Name: "mean", Value: make([]float32, 1)}
		d, err := New(ctx, comm, params, []*nn.Buffer{mean}, DefaultConfig())
		if err != nil {
			return err
		}
		pass := new(nn.Pass)
		d.Begin(ctx, pass, nil)
		backward(pass, params, comm.Rank(), 0) // not in the guessed order
		if err := d.Finish(); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if comm.Rank() == 1 {
			cancel()
		}
		for err == nil { // rank 0's broadcast may return before rank 1 begins it
			err = d.SyncBuffers(ctx)
		}
		return errors.Join(err, afterFailure(ctx, d, params, err))
	}), "context canceled")
}

// If a rank dies while the others wait for its gradients, the others get an error.
func TestDeadRankIsAnErrorOfAll(t *testing.T) {
	network := transport.NewNetwork(3)
	errs := ranksOf(t, network, func(ctx context.Context, comm *mpi.Comm) error {
		params := fakeModel(4, 4)
		d, err := New(ctx, comm, params, nil, Config{FirstBucketBytes: 1, Overlap: true})
		if err != nil {
			return err
		}
		pass := new(nn.Pass)
		d.Begin(ctx, pass, nil)
		backward(pass, params[1:], comm.Rank(), 0)
		if comm.Rank() == 1 {
			network.Kill(1)
			return nil
		}
		backward(pass, params[:1], comm.Rank(), 0)
		err = d.Finish()
		return errors.Join(err, afterFailure(ctx, d, params, err))
	})
	for _, rank := range []int{0, 2} {
		if err := errs[rank]; !errors.Is(err, mpi.ErrLost) {
			t.Errorf("rank %d: error %v, want that rank 1 is lost", rank, err)
		}
	}
}

// If a rank calls Close in the middle of a step, the other ranks get an error. Close leaves no goroutine.
func TestCloseInAStepIsAnErrorOfTheOthers(t *testing.T) {
	for _, overlap := range []bool{true, false} {
		errs := ranksOn(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
			params := fakeModel(4)
			d, err := New(ctx, comm, params, nil, Config{Overlap: overlap})
			if err != nil {
				return err
			}
			pass := new(nn.Pass)
			d.Begin(ctx, pass, nil)
			if comm.Rank() == 1 {
				d.Close()
				d.Close()
				if pass.Ready != nil {
					return errors.New("pass.Ready is still the DDP's")
				}
				return nil
			}
			backward(pass, params, 0, 0)
			return d.Finish()
		})
		if errs[1] != nil || errs[0] == nil || !strings.Contains(errs[0].Error(), "the DDP is closed") {
			t.Errorf("overlap %t: errors %v, want one of rank 0", overlap, errs)
		}
	}
}

// A rank that has failed does not wait for a rank that begins its step later. The late rank still gets the reason.
func TestFailureWaitsForNoRank(t *testing.T) {
	for name, tt := range map[string]struct {
		fail func(d *DDP, pass *nn.Pass) error
		want string
	}{
		"close":  {func(d *DDP, _ *nn.Pass) error { d.Close(); return d.err }, "the DDP is closed"},
		"unused": {func(d *DDP, _ *nn.Pass) error { return d.Finish() }, "has not used p0 on rank 0"},
		"used twice": {func(d *DDP, pass *nn.Pass) error { pass.Done(d.members[1].param); return d.Finish() },
			"has used p1 more than 1 times"},
	} {
		for _, overlap := range []bool{true, false} {
			for _, over := range transports {
				t.Run(fmt.Sprintf("%s/%t/%s", name, overlap, over), func(t *testing.T) {
					failed := make(chan struct{})
					testkit.Within(t, testkit.Patience, func() {
						failures(t, ranksOn(t, over, 2, func(ctx context.Context, comm *mpi.Comm) error {
							params := fakeModel(2, 3)
							d, err := New(ctx, comm, params, nil, Config{FirstBucketBytes: 1, BucketBytes: 1, Overlap: overlap})
							if err != nil {
								return err
							}
							if comm.Rank() == 1 {
								<-failed
							}
							pass := new(nn.Pass)
							d.Begin(ctx, pass, []float64{1})
							backward(pass, params[1:], comm.Rank(), 0)
							if comm.Rank() == 0 {
								defer close(failed)
								return tt.fail(d, pass)
							}
							backward(pass, params[:1], comm.Rank(), 0)
							return d.Finish()
						}), tt.want)
					})
				})
			}
		}
	}
}

// A rank that has failed by itself reports its own reason first, even if other ranks have failed for reasons of their own.
func TestOwnReasonComesFirst(t *testing.T) {
	var all sync.WaitGroup // the first must not fail while another one is in New
	all.Add(3)
	for rank, err := range ranksOn(t, "local", 3, func(ctx context.Context, comm *mpi.Comm) error {
		params := fakeModel(2, 3, 4)
		d, err := New(ctx, comm, params, nil, DefaultConfig())
		all.Done()
		all.Wait()
		if err != nil {
			return err
		}
		pass := new(nn.Pass)
		d.Begin(ctx, pass, []float64{1})
		for i, p := range params {
			if i != comm.Rank() {
				backward(pass, []*nn.Param{p}, 0, 0)
			}
		}
		return d.Finish()
	}) {
		if want := fmt.Sprintf("Backward has not used p%d on rank %d", rank, rank); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("rank %d: error %v, want %q", rank, err, want)
		}
	}
}

// After Close a model can be used without its Comm.
func TestModelOutlivesComm(t *testing.T) {
	params := make([][]*nn.Param, 2)
	must(t, ranksOn(t, "shm", 2, func(ctx context.Context, comm *mpi.Comm) error {
		params[comm.Rank()] = fakeModel(1000)
		d, err := New(ctx, comm, params[comm.Rank()], nil, DefaultConfig())
		if err != nil {
			return err
		}
		d.Close()
		pass := new(nn.Pass)
		d.Begin(ctx, pass, nil)
		if err := d.Finish(); !errors.Is(err, errClosed) {
			return fmt.Errorf("a step after Close: error %v", err)
		}
		return nil
	}))
	for rank := range params {
		backward(new(nn.Pass), params[rank], rank, 0) // would crash if gradients were still in the unmapped shared memory
		if err := expect(params[rank][0], localGradient(params[rank][0], rank, 0)); err != nil {
			t.Error(err)
		}
	}
}

// Whatever ends the reducer of one rank, all ranks get an error that says what it was.
func TestFailedHookIsAnErrorOfAll(t *testing.T) {
	for name, fail := range map[string]func() error{
		"an error":     func() error { return errors.New("out of bits") },
		"a panic":      func() error { panic("out of bits") },
		"a nil bucket": func() error { var b *Bucket; b.Data[0] = 1; return nil },
	} {
		want := "out of bits"
		if name == "a nil bucket" {
			want = "nil pointer dereference"
		}
		for _, overlap := range []bool{true, false} {
			for _, over := range transports {
				t.Run(fmt.Sprintf("%s/%t/%s", name, overlap, over), func(t *testing.T) {
					failures(t, ranksOn(t, over, 3, func(ctx context.Context, comm *mpi.Comm) error {
						reduced := 0
						return failing(ctx, comm, Config{Overlap: overlap, Hook: fakeHook{
							reduce: func(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
								if reduced++; reduced == 5 && comm.Rank() == 1 {
									return fail()
								}
								return mpi.AllReduce(ctx, comm, b.Data, mpi.Sum)
							},
						}})
					}), want)
				})
			}
		}
	}
}

// A hook that ends its goroutine, as t.FailNow does, ends the step.
func TestHookEndsItsGoroutine(t *testing.T) {
	failures(t, ranksOn(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
		return failing(ctx, comm, Config{Overlap: true, Hook: fakeHook{
			reduce: func(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
				if comm.Rank() == 1 {
					runtime.Goexit()
				}
				return mpi.AllReduce(ctx, comm, b.Data, mpi.Sum)
			},
		}})
	}), "in the middle of a step")
}

func TestFailedBindIsAnErrorOfAll(t *testing.T) {
	for _, nth := range []int{1, 2} { // in New, and for the buckets of the second step
		for rank, err := range ranksOn(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
			binds := 0
			err := failing(ctx, comm, Config{Hook: fakeHook{
				bind: func([]*Bucket) error {
					if binds++; binds == nth && comm.Rank() == 1 {
						return errors.New("no room")
					}
					return nil
				},
				reduce: func(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
					return mpi.AllReduce(ctx, comm, b.Data, mpi.Sum)
				},
			}})
			return err
		}) {
			if err == nil || !strings.Contains(err.Error(), "no room") {
				t.Errorf("bind %d: rank %d: error %v", nth, rank, err)
			}
		}
	}
}

// If a rank's hook fails, the Comm breaks at once, so that the other ranks need not wait until that rank's Backward ends.
func TestFailureIsPublishedDuringBackward(t *testing.T) {
	first := make(chan struct{})
	testkit.Within(t, testkit.Patience, func() {
		failures(t, ranksOn(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
			params := fakeModel(4, 4)
			d, err := New(ctx, comm, params, nil, Config{FirstBucketBytes: 1, Overlap: true, Hook: fakeHook{
				reduce: func(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
					if comm.Rank() == 1 {
						return errors.New("out of bits")
					}
					return mpi.AllReduce(ctx, comm, b.Data, mpi.Sum)
				},
			}})
			if err != nil {
				return err
			}
			pass := new(nn.Pass)
			d.Begin(ctx, pass, nil)
			backward(pass, params[1:], comm.Rank(), 0)
			if comm.Rank() == 1 {
				<-first // rank 0 has ended its step
			}
			backward(pass, params[:1], comm.Rank(), 0)
			err = d.Finish()
			if comm.Rank() == 0 {
				close(first)
			}
			return err
		}), "out of bits")
	})
}
