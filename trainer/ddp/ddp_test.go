package ddp

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/testenv"
	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
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
	for rank, err := range ranks(t, 3, func(ctx context.Context, comm *mpi.Comm) error {
		params := newModel(uint64(comm.Rank()), 3, 4, 2).Params()
		if _, err := New(ctx, comm, params, 0); err != nil {
			return err
		}
		for i, p := range params {
			if !slices.Equal(p.Value, want[i].Value) {
				return fmt.Errorf("%s is %v, want %v", p.Name, p.Value, want[i].Value)
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func TestAllReduceAveragesGradientsAndAddsScalars(t *testing.T) {
	const world = 4
	for rank, err := range ranks(t, world, func(ctx context.Context, comm *mpi.Comm) error {
		params := newModel(0, 2, 2).Params()
		d, err := New(ctx, comm, params, 2)
		if err != nil {
			return err
		}
		for range 2 { // the second round finds nothing left of the first
			d.ZeroGrad()
			for _, p := range params {
				for i := range p.Grad {
					p.Grad[i] += float32(comm.Rank() * (i + 1)) // as Backward does
				}
			}
			d.Scalars()[0] = 1
			d.Scalars()[1] = float32(comm.Rank())
			if err := d.AllReduce(ctx); err != nil {
				return err
			}
			for _, p := range params {
				for i, g := range p.Grad {
					if want := 1.5 * float32(i+1); g != want { // the mean of 0, 1, 2, 3 is 1.5
						return fmt.Errorf("%s: gradient %d is %v, want %v", p.Name, i, g, want)
					}
				}
			}
			if s := d.Scalars(); s[0] != world || s[1] != 6 {
				return fmt.Errorf("scalars are %v, want 4 and 6", s)
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func TestNewRefusesModelsThatDiffer(t *testing.T) {
	other := map[string]func() []*nn.Param{
		"another width":    func() []*nn.Param { return newModel(0, 3, 5, 2).Params() },
		"one layer more":   func() []*nn.Param { return newModel(0, 3, 4, 2, 2).Params() },
		"another order":    func() []*nn.Param { return newModel(0, 2, 4, 3).Params() },
		"no parameters":    func() []*nn.Param { return nil },
		"transposed shape": func() []*nn.Param { p := newModel(0, 3, 4, 2).Params(); p[0].Shape = []int{3, 4}; return p },
		"another name":     func() []*nn.Param { p := newModel(0, 3, 4, 2).Params(); p[3].Name = "1.offset"; return p },
	}
	for name, params := range other {
		t.Run(name, func(t *testing.T) {
			for rank, err := range ranks(t, 3, func(ctx context.Context, comm *mpi.Comm) error {
				mine := newModel(0, 3, 4, 2).Params()
				if comm.Rank() == 2 {
					mine = params()
				}
				_, err := New(ctx, comm, mine, 0)
				return err
			}) {
				if err == nil || !strings.Contains(err.Error(), "rank 2 and rank 0 differ in their model") {
					t.Errorf("rank %d: error %v, want one that names rank 2", rank, err)
				}
			}
		})
	}
}

func TestCollectivesEndWithTheContext(t *testing.T) {
	params := newModel(0, 2, 2).Params()
	d, err := New(t.Context(), mpi.Self(), params, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.AllReduce(ctx); err == nil || !strings.Contains(err.Error(), "all-reduce gradients") {
		t.Errorf("error %v, want one of the all-reduce", err)
	}
}

// Two ranks with half of the rows each get the gradients that real PyTorch's DDP gets over gloo.
func TestGradientsEqualPyTorchs(t *testing.T) {
	text, err := os.ReadFile(testenv.Shared(t, "golden", "ddp_mlp_sgd_w2.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		X, Y  [][]float32
		Init  []struct{ Data []float32 }
		Steps []struct{ Grads [][]float32 }
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	rows := func(table [][]float32, first int) nn.Matrix {
		return nn.Matrix{Rows: 4, Cols: len(table[0]), Data: slices.Concat(table[first : first+4]...)}
	}
	for rank, err := range ranks(t, 2, func(ctx context.Context, comm *mpi.Comm) error {
		r := rand.New(rand.NewPCG(uint64(comm.Rank()), 0))
		model := nn.NewSequential(nn.NewLinear(4, 8, r), nn.NewReLU(), nn.NewLinear(8, 3, r))
		params := model.Params()
		if comm.Rank() == 0 {
			for i, p := range params {
				copy(p.Value, golden.Init[i].Data)
			}
		}
		d, err := New(ctx, comm, params, 0)
		if err != nil {
			return err
		}
		var loss nn.MSE
		first := 4 * comm.Rank()
		_, dy := loss.Loss(model.Forward(rows(golden.X, first)), rows(golden.Y, first))
		model.Backward(dy, false)
		if err := d.AllReduce(ctx); err != nil {
			return err
		}
		for i, p := range params {
			for j, g := range p.Grad {
				// Rounding of sums in another order: a few units in the last place of values below 1.
				if want := golden.Steps[0].Grads[i][j]; math.Abs(float64(g-want)) > 1e-6 {
					return fmt.Errorf("%s: gradient %d is %v, PyTorch has %v", p.Name, j, g, want)
				}
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// The flat all-reduce of an MLP 784-128-10, 0.4 MB, between two ranks on the loopback.
func BenchmarkAllReduce(b *testing.B) {
	for _, err := range ranks(b, 2, func(ctx context.Context, comm *mpi.Comm) error {
		d, err := New(ctx, comm, newModel(0, 784, 128, 10).Params(), 1)
		if err != nil {
			return err
		}
		if comm.Rank() == 0 {
			b.ReportAllocs()
			b.SetBytes(int64(4 * len(d.flat)))
			b.ResetTimer()
		}
		for range b.N {
			if err := d.AllReduce(ctx); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			b.Fatal(err)
		}
	}
}
