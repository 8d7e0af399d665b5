package ddp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// With Overlap a bucket is reduced while Backward computes the gradients of the next bucket.
func TestBucketsAreReducedDuringBackward(t *testing.T) {
	testkit.Within(t, testkit.Patience, func() {
		must(t, ranksOn(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
			reduced := make(chan int, 3)
			params := fakeModel(4, 4, 4)
			d, err := New(ctx, comm, params, nil, Config{FirstBucketBytes: 1, BucketBytes: 1, Overlap: true, Hook: fakeHook{
				reduce: func(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
					defer func() { reduced <- b.Index }()
					return mpi.AllReduce(ctx, comm, b.Data, mpi.Sum)
				},
			}})
			if err != nil {
				return err
			}
			pass := new(nn.Pass)
			d.Begin(ctx, pass, nil)
			for i, place := range []int{2, 1, 0} {
				backward(pass, params[place:place+1], comm.Rank(), 0)
				if index := <-reduced; index != i {
					return fmt.Errorf("bucket %d is reduced after gradient %d", index, i)
				}
			}
			return d.Finish()
		}))
	})
}

// Without Overlap nothing is reduced before Finish. With or without it, buckets are reduced in order, whatever the order of gradients.
func TestBucketsAreReducedInOrder(t *testing.T) {
	for _, overlap := range []bool{true, false} {
		must(t, ranksOn(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
			var reduced []int
			finishing := false
			params := fakeModel(4, 4, 4)
			d, err := New(ctx, comm, params, nil, Config{FirstBucketBytes: 1, BucketBytes: 1, Overlap: overlap, Hook: fakeHook{
				reduce: func(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
					if !overlap && !finishing {
						return errors.New("reduced before Finish")
					}
					reduced = append(reduced, b.Index)
					return mpi.AllReduce(ctx, comm, b.Data, mpi.Sum)
				},
			}})
			if err != nil {
				return err
			}
			pass := new(nn.Pass)
			d.Begin(ctx, pass, nil)
			backward(pass, params, comm.Rank(), 0) // the last bucket is full first
			if !overlap {
				finishing = true
			}
			if err := d.Finish(); err != nil {
				return err
			}
			if !slices.Equal(reduced, []int{0, 1, 2}) {
				return fmt.Errorf("buckets are reduced in the order %v", reduced)
			}
			return nil
		}))
	}
}

// From the second synchronized step on, all ranks have their buckets in the order in which rank 0's gradients were complete in the first
// one, in the same memory. Gradients added before the buckets were rebuilt stay with their parameters.
func TestBucketsAreRebuilt(t *testing.T) {
	arrival := [][]int{{1, 3, 0, 2}, {0, 1, 2, 3}, {3, 2, 1, 0}}
	must(t, ranksOn(t, "local", 3, func(ctx context.Context, comm *mpi.Comm) error {
		params := fakeModel(4, 4, 4, 4)
		binds := 0
		d, err := New(ctx, comm, params, nil, Config{FirstBucketBytes: 16, BucketBytes: 32, Overlap: true, Hook: fakeHook{
			bind: func([]*Bucket) error { binds++; return nil },
			reduce: func(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
				scale(b.Data, 1/float64(comm.Size()))
				return mpi.AllReduce(ctx, comm, b.Data, mpi.Sum)
			},
		}})
		if err != nil {
			return err
		}
		memory := &d.buckets[0].Data[0]
		if err := hasBuckets(d, "[p3] [p2 p1] [p0]"); err != nil {
			return fmt.Errorf("guessed: %w", err)
		}
		for step, want := range []string{"[p3] [p2 p1] [p0]", "[p1] [p3 p0] [p2]", "[p1] [p3 p0] [p2]"} {
			var order []*nn.Param
			for _, place := range arrival[(comm.Rank()+step)%3] {
				order = append(order, params[place])
			}
			pass := new(nn.Pass)
			if comm.Rank() == 1 {
				scaleAll(params, 0) // each rank may decide for itself whether to call ZeroGrad
			} else {
				d.ZeroGrad()
			}
			backward(pass, order[:2], comm.Rank(), step)
			d.Begin(ctx, pass, nil)
			if err := hasBuckets(d, want); err != nil {
				return fmt.Errorf("in step %d: %w", step, err)
			}
			scaleAll(order[:2], 0.5) // half of the gradient was added before the step, and half is added in it: halves are exact
			for _, p := range order[:2] {
				for i, g := range localGradient(p, comm.Rank(), step) {
					p.Grad[i] += g / 2
				}
				pass.Done(p)
			}
			backward(pass, order[2:], comm.Rank(), step)
			if err := d.Finish(); err != nil {
				return err
			}
			for _, p := range params {
				if err := expect(p, meanGradient(p, 3, step)); err != nil {
					return fmt.Errorf("step %d: %w", step, err)
				}
			}
			if err := hasBuckets(d, want); err != nil { // Finish does not rebuild them
				return fmt.Errorf("after step %d: %w", step, err)
			}
		}
		if &d.buckets[0].Data[0] != memory {
			return errors.New("the rebuilt buckets are in other memory")
		}
		if binds != 2 {
			return fmt.Errorf("the hook has been bound %d times", binds)
		}
		return nil
	}))
}

// scaleAll multiplies gradients in place.
func scaleAll(params []*nn.Param, factor float32) {
	for _, p := range params {
		for i := range p.Grad {
			p.Grad[i] *= factor
		}
	}
}

func TestIsPermutation(t *testing.T) {
	for _, tt := range []struct {
		order []int32
		want  bool
	}{
		{nil, true}, {[]int32{0}, true}, {[]int32{2, 0, 1}, true},
		{[]int32{1}, false}, {[]int32{-1, 0}, false}, {[]int32{0, 0}, false}, {[]int32{0, 2}, false},
	} {
		if got := isPermutation(tt.order); got != tt.want {
			t.Errorf("isPermutation(%v) is %t", tt.order, got)
		}
	}
}

// hasBuckets checks the names of parameters by bucket, and that gradients are views of the buckets, one after another.
func hasBuckets(d *DDP, want string) error {
	got := ""
	for i, b := range d.buckets {
		var names []string
		rest := b.Data
		for _, p := range b.Params {
			names = append(names, p.Name)
			if &p.Grad[0] != &rest[0] || len(p.Grad) != len(p.Value) {
				return fmt.Errorf("the gradient of %s is not where it should be", p.Name)
			}
			rest = rest[len(p.Grad):]
		}
		if len(rest) > 0 || b.Index != i {
			return fmt.Errorf("bucket %d, with index %d, has %d elements left", i, b.Index, len(rest))
		}
		if i > 0 {
			got += " "
		}
		got += fmt.Sprint(names)
	}
	if got != want {
		return fmt.Errorf("buckets are %s, want %s", got, want)
	}
	return nil
}

// Stats counts communication that Backward hides apart from exposed communication. By a synctest clock, the hook sleeps once in a bucket
// that Backward hides and once in a bucket that it does not hide.
func TestStatsCountHiddenAndExposedTime(t *testing.T) {
	synctest.Test(t, testStats)
	if o := (Stats{}).Overlap(); o != 0 {
		t.Errorf("overlap of nothing is %v", o)
	}
}

func testStats(t *testing.T) {
	const nap = 20 * time.Millisecond
	var hidden chan struct{}
	params := fakeModel(4, 4)
	d, err := New(t.Context(), mpi.Self(), params, nil, Config{FirstBucketBytes: 1, BucketBytes: 1, Overlap: true, Hook: fakeHook{
		reduce: func(_ context.Context, _ *mpi.Comm, b *Bucket) error {
			time.Sleep(nap)
			if b.Index == 0 {
				close(hidden)
			}
			return nil
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for range 2 {
		hidden = make(chan struct{})
		pass := new(nn.Pass)
		d.Begin(t.Context(), pass, nil)
		backward(pass, params[1:], 0, 0)
		<-hidden
		backward(pass, params[:1], 0, 0)
		if err := d.Finish(); err != nil {
			t.Fatal(err)
		}
		if s := d.Stats(); s.Communication != 2*nap || s.Exposed != nap || s.Overlap() != 0.5 {
			t.Errorf("stats are %+v, overlap %v: two buckets of %v, one of them hidden", s, s.Overlap(), nap)
		}
	}
}

// steps takes n steps with a Backward that only marks parameters as done.
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

// In steady state a step allocates nothing on any rank. The test counts all mallocs of the process. A few are the runtime's and the
// test's own; one malloc for each step and rank would make 200.
func TestStepDoesNotAllocate(t *testing.T) { // without the race detector
	for _, over := range []string{"tcp", "shm"} {
		for name, cfg := range map[string]Config{
			"overlap":     {Overlap: true},
			"no overlap":  {},
			"find unused": {Overlap: true, FindUnused: true},
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
				// Other work of the process only adds mallocs, so the least of the rounds counts. All ranks take part in all rounds.
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

// BenchmarkStep measures the communication of an MLP 784-512-256-10, 2.1 MB of gradients in one bucket, between two ranks of this process.
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
