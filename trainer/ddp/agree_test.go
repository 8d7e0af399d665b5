package ddp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// Every rank gets the same error. It names the first difference and the rank that has it.
func TestNewRefusesModelsThatDiffer(t *testing.T) {
	model := func(widths ...int) []*nn.Param { return newModel(0, widths...).Params() }
	other := map[string]struct {
		params func() []*nn.Param
		want   string
	}{
		"another width": {func() []*nn.Param { return model(3, 5, 2) },
			"parameter 0.weight has shape [5 3] on rank 2 and [4 3] on rank 0"},
		"one layer more": {func() []*nn.Param { return model(3, 4, 2, 2) }, "rank 2 has parameter 2.weight [2 2], which rank 0 has not"},
		"one layer less": {func() []*nn.Param { return model(3, 4) }, "rank 0 has parameter 1.weight [2 4], which rank 2 has not"},
		"no parameters":  {func() []*nn.Param { return nil }, "rank 0 has parameter 0.weight [4 3], which rank 2 has not"},
		"transposed shape": {
			func() []*nn.Param { p := model(3, 4, 2); p[0].Shape = []int{3, 4}; return p },
			"parameter 0.weight has shape [3 4] on rank 2 and [4 3] on rank 0",
		},
		"another name": {
			func() []*nn.Param { p := model(3, 4, 2); p[3].Name = "1.offset"; return p },
			"number 3 of its tensors is parameter 1.offset [2] on rank 2 and parameter 1.bias [2] on rank 0",
		},
	}
	for name, tt := range other {
		t.Run(name, func(t *testing.T) {
			refused(t, tt.want, func(ctx context.Context, comm *mpi.Comm) error {
				params := model(3, 4, 2)
				if comm.Rank() == 2 {
					params = tt.params()
				}
				_, err := New(ctx, comm, params, nil, DefaultConfig())
				return err
			})
		})
	}
	t.Run("another buffer", func(t *testing.T) {
		refused(t, "buffer mean has shape [2] on rank 2 and [3] on rank 0", func(ctx context.Context, comm *mpi.Comm) error {
			b := &nn.Buffer{Name: "mean", Shape: []int{3}, Value: make([]float32, 3)}
			if comm.Rank() == 2 {
				b = &nn.Buffer{Name: "mean", Shape: []int{2}, Value: make([]float32, 2)}
			}
			_, err := New(ctx, comm, nil, []*nn.Buffer{b}, DefaultConfig())
			return err
		})
	})
	t.Run("other settings", func(t *testing.T) {
		refused(t, "rank 2 has buckets of 8 bytes", func(ctx context.Context, comm *mpi.Comm) error {
			cfg := DefaultConfig()
			if comm.Rank() == 2 {
				cfg.BucketBytes = 8
			}
			_, err := New(ctx, comm, nil, nil, cfg)
			return err
		})
	})
}

// Hooks are compared by their types and Strings, not by their addresses.
func TestNewComparesHooks(t *testing.T) {
	powerSGD := func(seed uint64) Hook { return mustPowerSGD(PowerSGDConfig{Rank: 2, MinRate: 1, Seed: seed}) }
	for name, of := range map[string]func() Hook{
		"float16": NewFloat16Hook, "int8": NewInt8Hook, "PowerSGD": func() Hook { return powerSGD(1) },
		"a user's": func() Hook { return new(fakeHook) },
	} {
		must(t, ranksOn(t, "local", 4, func(ctx context.Context, comm *mpi.Comm) error {
			if _, err := New(ctx, comm, nil, nil, Config{Hook: of()}); err != nil {
				return fmt.Errorf("equal hooks, %s: %w", name, err)
			}
			return nil
		}))
	}
	for name, hooks := range map[string][2]func() Hook{
		"none and one": {func() Hook { return nil }, NewInt8Hook},
		"two types":    {NewFloat16Hook, NewBFloat16Hook},
		"two settings": {func() Hook { return powerSGD(1) }, func() Hook { return powerSGD(2) }},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, "rank 2 has buckets", func(ctx context.Context, comm *mpi.Comm) error {
				_, err := New(ctx, comm, nil, nil, Config{Hook: hooks[comm.Rank()/2]()})
				return err
			})
		})
	}
}

func refused(t *testing.T, want string, f func(ctx context.Context, comm *mpi.Comm) error) {
	t.Helper()
	for rank, err := range ranksOn(t, "local", 4, f) {
		if err == nil || !strings.Contains(err.Error(), "rank 2 and rank 0 differ in their model: "+want) {
			t.Errorf("rank %d: error %v, want one with %q", rank, err, want)
		}
	}
}

func TestCompareDigestsNamesTheRankThatDiffers(t *testing.T) {
	for rank, err := range ranksOn(t, "local", 3, func(ctx context.Context, comm *mpi.Comm) error {
		if err := CompareDigests(ctx, comm, "data", [32]byte{1}); err != nil {
			return err
		}
		return CompareDigests(ctx, comm, "data", [32]byte{byte(comm.Rank() / 2)})
	}) {
		if err == nil || !strings.Contains(err.Error(), "rank 2 and rank 0 differ in their data") {
			t.Errorf("rank %d: error %v, want one that names rank 2", rank, err)
		}
	}
}

// Two tensors of one name, or a shape that does not fit the values, are an error on all ranks. The error names the tensor.
func TestNewChecksTensors(t *testing.T) {
	param := func(name string, shape ...int) *nn.Param {
		return &nn.Param{Name: name, Shape: shape, Value: make([]float32, 4)}
	}
	buffer := func(name string, shape ...int) *nn.Buffer {
		return &nn.Buffer{Name: name, Shape: shape, Value: make([]float32, 4)}
	}
	twice, mean := param("w", 4), buffer("mean", 4)
	for name, tt := range map[string]struct {
		params  []*nn.Param
		buffers []*nn.Buffer
		want    string // empty: no error
	}{
		"all well":         {[]*nn.Param{param("w", 2, 2), param("b", 4, 1)}, []*nn.Buffer{mean}, ""},
		"shared":           {[]*nn.Param{twice, param("b", 4), twice}, []*nn.Buffer{mean, mean}, ""},
		"two parameters":   {[]*nn.Param{param("w", 4), param("b", 4), param("w", 2, 2)}, nil, "parameter w [2 2] has the name of another"},
		"two buffers":      {nil, []*nn.Buffer{mean, buffer("mean", 4)}, "buffer mean [4] has the name of another"},
		"one of each":      {[]*nn.Param{param("w", 4)}, []*nn.Buffer{buffer("w", 4)}, "buffer w [4] has the name of another"},
		"too short":        {[]*nn.Param{param("w", 2, 3)}, nil, "parameter w [2 3] has 4 values"},
		"too long":         {nil, []*nn.Buffer{buffer("mean", 3)}, "buffer mean [3] has 4 values"},
		"a scalar":         {nil, []*nn.Buffer{buffer("mean")}, "buffer mean [] has 4 values"},
		"negative lengths": {[]*nn.Param{param("w", -2, -2)}, nil, "parameter w [-2 -2] has 4 values"},
	} {
		if tt.want == "" {
			if _, err := New(t.Context(), mpi.Self(), tt.params, tt.buffers, DefaultConfig()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		for rank, err := range ranksOn(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
			var err error
			if comm.Rank() == 1 {
				_, err = New(ctx, comm, tt.params, tt.buffers, DefaultConfig())
			} else {
				_, err = New(ctx, comm, nil, nil, DefaultConfig())
			}
			return err
		}) {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: rank %d: error %v, want %q", name, rank, err, tt.want)
			}
		}
	}
}

// An error in one rank's arguments fails all ranks. Otherwise the others would wait for that rank.
func TestBadArgumentsOfOneRankFailAll(t *testing.T) {
	for want, call := range map[string]func(ctx context.Context, comm *mpi.Comm, wrong bool) error{
		"sizes must not be negative": func(ctx context.Context, comm *mpi.Comm, wrong bool) error {
			cfg := DefaultConfig()
			if wrong {
				cfg.BucketBytes = -1
			}
			_, err := New(ctx, comm, nil, nil, cfg)
			return err
		},
		"the period is 0 steps": func(ctx context.Context, comm *mpi.Comm, wrong bool) error {
			period := int64(1)
			if wrong {
				period = 0
			}
			_, err := NewAverager(ctx, comm, nil, period, 0)
			return err
		},
		"rank 1 and rank 0 differ in their averaging": func(ctx context.Context, comm *mpi.Comm, wrong bool) error {
			length := 4
			if wrong {
				length = 5
			}
			_, err := NewAverager(ctx, comm, [][]float32{make([]float32, length)}, 1, 0)
			return err
		},
		"bad learning rate": func(ctx context.Context, comm *mpi.Comm, wrong bool) error {
			_, err := NewZero(ctx, comm, newTrained(shapes...), func(own []*nn.Param) (*adamLike, error) {
				if wrong {
					return nil, errors.New("bad learning rate")
				}
				return newAdamLike(own)
			})
			return err
		},
	} {
		for rank, err := range ranksOn(t, "local", 3, func(ctx context.Context, comm *mpi.Comm) error {
			return call(ctx, comm, comm.Rank() == 1)
		}) {
			if err == nil || !strings.Contains(err.Error(), want) || rank != 1 && !strings.Contains(err.Error(), "rank 1") {
				t.Errorf("rank %d: error %v, want rank 1's: %q", rank, err, want)
			}
		}
	}
}
