package ddp

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/internal/testkit/golden"
	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
	"ddpbatch/trainer/optim"
)

func newModel(seed uint64, widths ...int) nn.Module {
	r := rand.New(rand.NewPCG(seed, 0))
	var layers []nn.Module
	for i := 1; i < len(widths); i++ {
		layers = append(layers, nn.NewLinear(widths[i-1], widths[i], r))
	}
	return nn.NewSequential(layers...)
}

func TestNewGivesAllRanksTheFirstOnesValues(t *testing.T) {
	want := newModel(0, 3, 4, 2).Params()
	everywhere(t, func(ctx context.Context, comm *mpi.Comm) error {
		params := newModel(uint64(comm.Rank()), 3, 4, 2).Params()
		mean := &nn.Buffer{Name: "mean", Shape: []int{2}, Value: []float32{float32(comm.Rank()), 7}}
		if _, err := New(ctx, comm, params, []*nn.Buffer{mean}, DefaultConfig()); err != nil {
			return err
		}
		for i, p := range params {
			if !slices.Equal(p.Value, want[i].Value) {
				return fmt.Errorf("%s is %v, want %v", p.Name, p.Value, want[i].Value)
			}
		}
		if !slices.Equal(mean.Value, []float32{0, 7}) {
			return fmt.Errorf("the buffer is %v, want that of rank 0", mean.Value)
		}
		return nil
	})
}

// Gradients are the means by PyTorch's rule, bit for bit, and the sums are added up, in every step. The first step has buckets in the
// guessed order of parameters, the later ones in the order in which the first step's gradients were complete.
func TestStepAverages(t *testing.T) {
	everywhere(t, func(ctx context.Context, comm *mpi.Comm) error {
		params := fakeModel(5, 300, 1, 0, 64)
		d, err := New(ctx, comm, params, nil, Config{FirstBucketBytes: 300, BucketBytes: 1000, Overlap: true})
		if err != nil {
			return err
		}
		shuffled := []*nn.Param{params[3], params[1], params[4], params[0], params[2]}
		for step := range 3 {
			d.ZeroGrad()
			pass, sums := &nn.Pass{Training: true}, []float64{1, float64(comm.Rank())}
			d.Begin(ctx, pass, sums)
			backward(pass, shuffled, comm.Rank(), step)
			if err := d.Finish(); err != nil {
				return err
			}
			for _, p := range params {
				if err := expect(p, meanGradient(p, comm.Size(), step)); err != nil || !p.HasGrad {
					return fmt.Errorf("step %d: has a gradient: %t, %w", step, p.HasGrad, err)
				}
			}
			n := float64(comm.Size())
			if want := []float64{n, n * (n - 1) / 2}; !slices.Equal(sums, want) {
				return fmt.Errorf("sums are %v, want %v", sums, want)
			}
			if pass.Ready != nil {
				return fmt.Errorf("pass.Ready is still the DDP's")
			}
		}
		return nil
	})
}

// A gradient that Backward adds outside of Begin and Finish stays on its rank until the next synchronized step (PyTorch's no_sync).
func TestGradientsGatherWithoutSync(t *testing.T) {
	everywhere(t, func(ctx context.Context, comm *mpi.Comm) error {
		params := fakeModel(3)
		d, err := New(ctx, comm, params, nil, DefaultConfig())
		if err != nil {
			return err
		}
		add := func(pass *nn.Pass, g float32) {
			for i := range params[0].Grad {
				params[0].Grad[i] += g
			}
			pass.Done(params[0])
		}
		for range 2 {
			d.ZeroGrad()
			pass := new(nn.Pass)
			add(pass, float32(comm.Rank()))
			if err := expect(params[0], slices.Repeat([]float32{float32(comm.Rank())}, 3)); err != nil {
				return fmt.Errorf("before the step: %w", err)
			}
			d.Begin(ctx, pass, nil)
			add(pass, 4)
			if err := d.Finish(); err != nil {
				return err
			}
			want := 0.0 // a sum of halves or quarters of small integers is exact; the thirds of 4, 5 and 6 are rounded
			for rank := range comm.Size() {
				want += float64(float32(4+rank) * (1 / float32(comm.Size())))
			}
			if err := expect(params[0], slices.Repeat([]float32{float32(want)}, 3)); err != nil {
				return fmt.Errorf("after it: %w", err)
			}
		}
		return nil
	})
}

// A parameter that is used twice is ready after its second use.
func TestSharedParameterIsReadyAfterItsLastUse(t *testing.T) {
	everywhere(t, func(ctx context.Context, comm *mpi.Comm) error {
		params := fakeModel(4, 4)
		tied := []*nn.Param{params[0], params[1], params[0]}
		d, err := New(ctx, comm, tied, nil, Config{FirstBucketBytes: 1, BucketBytes: 1, Overlap: true})
		if err != nil {
			return err
		}
		if n := len(d.buckets); n != 2 {
			return fmt.Errorf("%d buckets, want one for each parameter", n)
		}
		for step := range 2 {
			d.ZeroGrad()
			pass := new(nn.Pass)
			d.Begin(ctx, pass, nil)
			backward(pass, tied[:1], comm.Rank(), step)
			backward(pass, tied[1:], comm.Rank(), step)
			if err := d.Finish(); err != nil {
				return err
			}
			twice := meanGradient(params[0], comm.Size(), step)
			for i := range twice {
				twice[i] *= 2 // every rank's gradient is doubled, which is exact
			}
			if err := expect(params[0], twice); err != nil {
				return err
			}
			if err := expect(params[1], meanGradient(params[1], comm.Size(), step)); err != nil {
				return err
			}
		}
		return nil
	})
}

// The DDP does not change the gradients of parameters that New did not get.
func TestFrozenParametersAreLeftAlone(t *testing.T) {
	must(t, ranks(t, 2, func(ctx context.Context, comm *mpi.Comm) error {
		params := fakeModel(4, 4)
		d, err := New(ctx, comm, params[1:], nil, DefaultConfig())
		if err != nil {
			return err
		}
		pass := new(nn.Pass)
		d.Begin(ctx, pass, nil)
		backward(pass, params, comm.Rank(), 0)
		if err := d.Finish(); err != nil {
			return err
		}
		if err := expect(params[0], localGradient(params[0], comm.Rank(), 0)); err != nil {
			return err
		}
		return expect(params[1], meanGradient(params[1], 2, 0))
	}))
}

// SyncBuffers gives all ranks rank 0's buffers if BroadcastBuffers is true. Otherwise it leaves them as they are.
func TestSyncBuffersGivesAllRankZeros(t *testing.T) {
	everywhere(t, func(ctx context.Context, comm *mpi.Comm) error {
		for _, wanted := range []bool{true, false} {
			a, b := &nn.Buffer{Name: "a", Value: make([]float32, 1)}, &nn.Buffer{Name: "b", Shape: []int{2}, Value: make([]float32, 2)}
			d, err := New(ctx, comm, nil, []*nn.Buffer{a, b}, Config{BroadcastBuffers: wanted})
			if err != nil {
				return err
			}
			here, want := float32(comm.Rank()+1), float32(comm.Rank()+1)
			if wanted {
				want = 1
			}
			a.Value[0], b.Value[0], b.Value[1] = here, 10*here, 100*here
			if err := d.SyncBuffers(ctx); err != nil {
				return err
			}
			if got := slices.Concat(a.Value, b.Value); !slices.Equal(got, []float32{want, 10 * want, 100 * want}) {
				return fmt.Errorf("broadcast %t: buffers are %v", wanted, got)
			}
		}
		return nil
	})
}

func TestMisusePanics(t *testing.T) {
	d, err := New(t.Context(), mpi.Self(), fakeModel(1), nil, DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	panics := func(want string, f func()) {
		t.Helper()
		defer func() {
			if p := recover(); p != "ddp: "+want {
				t.Errorf("the panic is %v, want %q", p, want)
			}
		}()
		f()
	}
	panics("Finish without Begin", func() { d.Finish() })
	d.Begin(t.Context(), new(nn.Pass), nil)
	panics("Begin without Finish", func() { d.Begin(t.Context(), new(nn.Pass), nil) })
	panics("ZeroGrad between Begin and Finish", func() { d.ZeroGrad() })
	panics("SyncBuffers between Begin and Finish", func() { d.SyncBuffers(t.Context()) })
	panics("Stats between Begin and Finish", func() { d.Stats() })

	for _, cfg := range []Config{
		{BucketBytes: -1}, {FirstBucketBytes: -1},
	} {
		if _, err := New(t.Context(), mpi.Self(), nil, nil, cfg); err == nil {
			t.Errorf("New accepts %v", cfg)
		}
	}
}

// The bits of trained parameters depend only on the inputs and the number of ranks. They do not depend on the sizes of buckets, on
// Overlap, on FindUnused, or on the transport.
func TestBitsDependOnInputsAlone(t *testing.T) { // without the race detector
	want := map[int][]uint32{}
	for world := 1; world <= 4; world++ {
		bits, errs := trainedBits(t, "local", world, Config{})
		must(t, errs)
		want[world] = bits[0]
	}
	rapid.Check(t, func(rt *rapid.T) {
		world := rapid.IntRange(1, 4).Draw(rt, "world")
		size := rapid.SampledFrom([]int{1, 30, 100, 400, 1000, 1 << 20})
		cfg := Config{
			FirstBucketBytes: size.Draw(rt, "first"),
			BucketBytes:      size.Draw(rt, "others"),
			Overlap:          rapid.Bool().Draw(rt, "overlap"),
			FindUnused:       rapid.Bool().Draw(rt, "find unused"),
		}
		got, errs := trainedBits(t, rapid.SampledFrom([]string{"local", "local", "tcp", "shm"}).Draw(rt, "over"), world, cfg)
		for rank, err := range errs {
			if err != nil {
				rt.Fatal(err)
			}
			if !slices.Equal(got[rank], want[world]) {
				rt.Fatalf("rank %d has other parameters than with one bucket over a local network", rank)
			}
		}
	})
}

// trainedBits returns each rank's parameters after some steps of a small MLP.
func trainedBits(t *testing.T, over string, world int, cfg Config) ([][]uint32, []error) {
	bits := make([][]uint32, world)
	errs := ranksOn(t, over, world, func(ctx context.Context, comm *mpi.Comm) error {
		src := rand.New(rand.NewPCG(1, 2))
		model := nn.NewSequential(nn.NewLinear(6, 20, src), nn.NewReLU(), nn.NewLinear(20, 10, src), nn.NewReLU(), nn.NewLinear(10, 3, src))
		d, err := New(ctx, comm, model.Params(), nil, cfg)
		if err != nil {
			return err
		}
		optimizer, err := optim.New(model.Params(), optim.Config{Kind: "sgd", LR: 0.1, Momentum: 0.9})
		if err != nil {
			return err
		}
		var loss nn.MSE
		for step := range uint64(4) {
			data := rand.New(rand.NewPCG(step, uint64(comm.Rank())))
			x, y := randomMatrix(data, 5, 6), randomMatrix(data, 5, 3)
			pass := &nn.Pass{Training: true}
			d.ZeroGrad()
			_, dy := loss.Loss(model.Forward(pass, x), y)
			d.Begin(ctx, pass, nil)
			model.Backward(pass, dy, false)
			if err := d.Finish(); err != nil {
				return err
			}
			optimizer.Step()
		}
		for _, p := range model.Params() {
			for _, x := range p.Value {
				bits[comm.Rank()] = append(bits[comm.Rank()], math.Float32bits(x))
			}
		}
		return nil
	})
	return bits, errs
}

func randomMatrix(r *rand.Rand, rows, cols int) nn.Matrix {
	m := nn.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64())
	}
	return m
}

// The ranks take PyTorch's steps: losses, gradients and final parameters are the same. A world of another size than PyTorch's, with as
// many rows in all, has the same gradients and parameters.
func TestTrainsLikePyTorch(t *testing.T) { // without the race detector
	for _, theirs := range []int{1, 2} {
		g := golden.Read(t, theirs)
		for _, over := range transports {
			for _, world := range []int{1, 2, 4} {
				t.Run(fmt.Sprintf("PyTorch on %d/%s/%d", theirs, over, world), func(t *testing.T) {
					must(t, ranksOn(t, over, world, func(ctx context.Context, comm *mpi.Comm) error {
						return repeat(ctx, comm, g, world == theirs)
					}))
				})
			}
		}
	}
}

// repeat trains as g did, and compares gradients and final parameters. It compares losses only if losses is true, for a world of the size
// of PyTorch's.
func repeat(ctx context.Context, comm *mpi.Comm, g golden.Training, losses bool) error {
	src := constant(comm.Rank())
	model := nn.NewSequential(nn.NewLinear(4, 8, src), nn.NewReLU(), nn.NewLinear(8, 3, src))
	params := model.Params()
	if comm.Rank() == 0 {
		for i, p := range params {
			copy(p.Value, g.Init[i].Data)
		}
	}
	d, err := New(ctx, comm, params, model.Buffers(), Config{FirstBucketBytes: 100, BucketBytes: 100, Overlap: true})
	if err != nil {
		return err
	}
	optimizer, err := optim.New(params, optim.Config{Kind: "sgd", LR: 0.1, Momentum: 0.9})
	if err != nil {
		return err
	}
	const global = 8 // rows of a step
	rows := global / comm.Size()
	var loss nn.MSE
	pass := &nn.Pass{Training: true}
	for s, step := range g.Steps {
		first := (global*s)%len(g.X) + rows*comm.Rank()
		x, y := matrix(g.X[first:first+rows]), matrix(g.Y[first:first+rows])
		d.ZeroGrad()
		value, dy := loss.Loss(model.Forward(pass, x), y)
		d.Begin(ctx, pass, nil)
		model.Backward(pass, dy, false)
		if err := d.Finish(); err != nil {
			return err
		}
		if losses {
			if err := near("loss", []float32{float32(value)}, []float32{float32(step.Losses[comm.Rank()])}); err != nil {
				return fmt.Errorf("step %d: %w", s, err)
			}
		}
		for i, want := range step.Grads {
			if err := near(params[i].Name, params[i].Grad, want); err != nil {
				return fmt.Errorf("step %d: gradient of %w", s, err)
			}
		}
		optimizer.Step()
	}
	for i, p := range params {
		if err := near(p.Name, p.Value, g.Final[i].Data); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	return nil
}

// near compares within the error of sums that are rounded in another order: a few units in the last place of values around 1.
func near(what string, got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s has %d elements, PyTorch has %d", what, len(got), len(want))
	}
	for i := range got {
		if diff := math.Abs(float64(got[i]) - float64(want[i])); !(diff <= golden.Tolerance) {
			return fmt.Errorf("%s: element %d is %v, PyTorch has %v", what, i, got[i], want[i])
		}
	}
	return nil
}

func matrix(rows [][]float32) nn.Matrix {
	return nn.Matrix{Rows: len(rows), Cols: len(rows[0]), Data: slices.Concat(rows...)}
}

// constant is a Source of initial values. Every rank but the first loses them, since New gives all ranks rank 0's.
type constant int

func (c constant) Uint32() uint32 { return uint32(c) << 20 }
