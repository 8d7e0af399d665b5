package ddp

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// As PyTorch's test of uneven inputs: rank r has 3 + 2r steps, whose gradients are 50 times 1. Divided by the ranks that are left they are 50 in all
// steps; divided by all, they shrink. Ranks without input get the same gradients, sums and buffers.
func TestUnevenInputs(t *testing.T) {
	mean := fakeHook{reduce: func(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
		scale(b.Data, 1/float64(comm.Size()))
		return mpi.AllReduce(ctx, comm, b.Data, mpi.Sum)
	}}
	for _, uneven := range []Uneven{DivideByWorld, DivideByActive} {
		for name, cfg := range map[string]Config{"": {}, "find unused": {FindUnused: true}, "hook": {Hook: mean}} {
			t.Run(fmt.Sprintf("%d/%s", uneven, name), func(t *testing.T) {
				cfg.Uneven, cfg.Overlap, cfg.BroadcastBuffers, cfg.FirstBucketBytes, cfg.BucketBytes = uneven, true, true, 1, 1
				everywhere(t, func(ctx context.Context, comm *mpi.Comm) error { return unevenSteps(ctx, comm, cfg) })
			})
		}
	}
}

func unevenSteps(ctx context.Context, comm *mpi.Comm, cfg Config) error {
	params := fakeModel(1, 3)
	counter := &nn.Buffer{Name: "steps", Value: make([]float32, 1)}
	d, err := New(ctx, comm, params, []*nn.Buffer{counter}, cfg)
	if err != nil {
		return err
	}
	own := func(rank int) int { return 3 + 2*rank }
	last := own(comm.Size() - 1)
	for step := 0; ; step++ {
		active := 0
		for rank := range comm.Size() {
			if step < own(rank) {
				active++
			}
		}
		sums := []float64{float64(comm.Rank() + 1)}
		d.ZeroGrad()
		if step < own(comm.Rank()) {
			if err := unevenStep(ctx, d, params, counter, sums); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
		} else {
			got, err := d.Shadow(ctx, sums)
			if err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
			if got != active {
				return fmt.Errorf("step %d: %d ranks had input, want %d", step, got, active)
			}
			if got == 0 {
				if step != last || sums[0] != float64(comm.Rank()+1) {
					return fmt.Errorf("all input has ended at step %d, want %d; sums are %v", step, last, sums)
				}
				return nil
			}
		}
		want := float32(50)
		if cfg.Uneven == DivideByWorld {
			want = 0 // the ranks' terms are equal: their sum rounds as this one does, or not at all
			for range active {
				want += 50 * (1 / float32(comm.Size()))
			}
		}
		for _, p := range params {
			for _, g := range p.Grad {
				if diff := g - want; diff > 1e-5 || diff < -1e-5 || !p.HasGrad { // 50 is rounded to 4e-6
					return fmt.Errorf("step %d: gradient %v of %s, want %v", step, g, p.Name, want)
				}
			}
		}
		if n := float64(comm.Size()); sums[0] != n*(n+1)/2 {
			return fmt.Errorf("step %d: sum is %v", step, sums[0])
		}
		// The buffers come from the first rank that had input, which has changed it in its own steps.
		if step >= own(comm.Rank()) && counter.Value[0] != float32(step) {
			return fmt.Errorf("step %d: the buffer is %v", step, counter.Value[0])
		}
	}
}

func unevenStep(ctx context.Context, d *DDP, params []*nn.Param, counter *nn.Buffer, sums []float64) error {
	if err := d.SyncBuffers(ctx); err != nil {
		return err
	}
	counter.Value[0]++
	pass := new(nn.Pass)
	d.Begin(ctx, pass, sums)
	for _, p := range slices.Backward(params) {
		for i := range p.Grad {
			p.Grad[i] += 50
		}
		pass.Done(p)
	}
	return d.Finish()
}

// Without buffers, ranks hear of the end of the input in the sums.
func TestUnevenInputsWithoutBuffers(t *testing.T) {
	everywhere(t, func(ctx context.Context, comm *mpi.Comm) error {
		params := fakeModel(2)
		d, err := New(ctx, comm, params, nil, Config{Uneven: DivideByActive})
		if err != nil {
			return err
		}
		for epoch := range 2 { // the ranks without input have some again
			for step := range 1 + comm.Rank() {
				d.ZeroGrad()
				pass := new(nn.Pass)
				d.Begin(ctx, pass, nil)
				backward(pass, params, 0, step)
				if err := d.Finish(); err != nil {
					return err
				}
			}
			steps := 1 + comm.Rank()
			for {
				d.ZeroGrad()
				active, err := d.Shadow(ctx, nil)
				if err != nil {
					return err
				}
				if active == 0 {
					break
				}
				steps++
			}
			if steps != comm.Size() {
				return fmt.Errorf("epoch %d: %d steps, want %d", epoch, steps, comm.Size())
			}
		}
		return nil
	})
}

func TestShadowNeedsUneven(t *testing.T) {
	d, err := New(t.Context(), mpi.Self(), nil, nil, DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Shadow(t.Context(), nil); err == nil {
		t.Error("Shadow goes on without Config.Uneven")
	}
}

// What a rank has gathered before its input has ended goes into the mean of the others' step, or into one of its own.
func TestShadowSendsWhatHasGathered(t *testing.T) {
	for uneven, want := range map[Uneven][]float32{
		DivideByWorld:  {(1 + 10 + 0) / 4.0, (0 + 10 + 0) / 4.0},
		DivideByActive: {(1 + 10 + 0) / 2.0, 10},
	} {
		t.Run(fmt.Sprint(uneven), func(t *testing.T) {
			must(t, ranksOn(t, "local", 4, func(ctx context.Context, comm *mpi.Comm) error {
				params := fakeModel(1, 1)
				mean := &nn.Buffer{Name: "mean", Value: []float32{0}}
				d, err := New(ctx, comm, params, []*nn.Buffer{mean}, Config{Uneven: uneven, BroadcastBuffers: true, Overlap: true})
				if err != nil {
					return err
				}
				add := func(pass *nn.Pass, g float32) {
					for _, p := range slices.Backward(params) {
						p.Grad[0] += g
						pass.Done(p)
					}
				}
				pass := new(nn.Pass)
				mean.Value[0] = float32(comm.Rank())
				if comm.Rank() == 1 {
					add(pass, 10)
				}
				active := 2
				if comm.Rank() == 3 {
					if err := d.SyncBuffers(ctx); err != nil {
						return err
					}
					d.Begin(ctx, pass, nil)
					add(pass, 1)
					err = d.Finish()
				} else {
					active, err = d.Shadow(ctx, nil)
				}
				if err != nil {
					return err
				}
				for _, p := range params {
					if p.Grad[0] != want[0] || !p.HasGrad || active != 2 || mean.Value[0] != 1 {
						return fmt.Errorf("the gradient is %v of %d ranks, want %v of 2; the buffer is rank %v's", p.Grad, active, want[0], mean.Value[0])
					}
				}
				d.ZeroGrad()
				if comm.Rank() == 1 {
					add(pass, 10)
				}
				if active, err = d.Shadow(ctx, nil); err != nil || active != 1 || params[0].Grad[0] != want[1] {
					return fmt.Errorf("one's own: the gradient is %v of %d ranks, want %v of 1; error %w", params[0].Grad, active, want[1], err)
				}
				d.ZeroGrad()
				if active, err = d.Shadow(ctx, nil); err != nil || active != 0 {
					return fmt.Errorf("nothing: %d ranks, error %w", active, err)
				}
				return nil
			}))
		})
	}
}

// The order of buckets changes for ranks with and without input at once, whoever calls ZeroGrad.
func TestShadowInRebuiltBuckets(t *testing.T) {
	must(t, ranksOn(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
		params := fakeModel(1, 1)
		d, err := New(ctx, comm, params, nil, Config{Uneven: DivideByWorld, BucketBytes: 1, FirstBucketBytes: 1})
		if err != nil {
			return err
		}
		for step := range 2 {
			if step == 1 && comm.Rank() == 1 {
				d.ZeroGrad()
				if _, err := d.Shadow(ctx, nil); err != nil {
					return err
				}
				break
			}
			pass := new(nn.Pass)
			d.Begin(ctx, pass, nil)
			for i, p := range params { // not in the order that was guessed
				p.Grad[0] += float32(1 + 10*i)
				pass.Done(p)
			}
			if err := d.Finish(); err != nil {
				return err
			}
		}
		// Rank 0's step adds to its means, which are 1 and 11: half of 2 and of 22.
		if params[0].Grad[0] != 1 || params[1].Grad[0] != 11 {
			return fmt.Errorf("gradients are %v and %v, want 1 and 11", params[0].Grad, params[1].Grad)
		}
		return nil
	}))
}

// The means of the last step, sent again, would count twice.
func TestShadowNeedsZeroGrad(t *testing.T) {
	params := fakeModel(1)
	d, err := New(t.Context(), mpi.Self(), params, nil, Config{Uneven: DivideByWorld})
	if err != nil {
		t.Fatal(err)
	}
	pass := new(nn.Pass)
	d.Begin(t.Context(), pass, nil)
	backward(pass, params, 0, 0)
	if err := d.Finish(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Shadow(t.Context(), nil); err != errNoZeroing {
		t.Errorf("error %v, want that ZeroGrad is missing", err)
	}
}
