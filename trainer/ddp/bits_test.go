package ddp

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
	"ddpbatch/trainer/optim"
)

// The bits of trained parameters depend on the inputs and the number of ranks alone: not on the sizes of buckets, on overlap, on
// the transport, or on what is allowed besides.
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
			Uneven:           Uneven(rapid.IntRange(0, 2).Draw(rt, "uneven")),
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
