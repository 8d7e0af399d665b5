package ddp

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// Every rank gets the same error, which names the first thing that differs, and on which rank.
func TestNewRefusesModelsThatDiffer(t *testing.T) {
	model := func(widths ...int) []*nn.Param { return newModel(0, widths...).Params() }
	other := map[string]struct {
		params func() []*nn.Param
		want   string
	}{
		"another width":  {func() []*nn.Param { return model(3, 5, 2) }, "parameter 0.weight has shape [5 3] on rank 2 and [4 3] on rank 0"},
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

// Hooks are told apart by their types and what their String says, not by where they are in memory.
func TestNewComparesHooks(t *testing.T) {
	powerSGD := func(seed uint64) Hook { return mustPowerSGD(PowerSGDConfig{Rank: 2, MinRate: 1, Seed: seed}) }
	for name, of := range map[string]func() Hook{
		"float16": NewFloat16Hook, "int8": NewInt8Hook, "PowerSGD": func() Hook { return powerSGD(1) }, "a user's": func() Hook { return new(fakeHook) },
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

func TestAgree(t *testing.T) {
	for rank, err := range ranksOn(t, "local", 3, func(ctx context.Context, comm *mpi.Comm) error {
		if err := Agree(ctx, comm, "data", [32]byte{1}); err != nil {
			return err
		}
		return Agree(ctx, comm, "data", [32]byte{byte(comm.Rank() / 2)})
	}) {
		if err == nil || !strings.Contains(err.Error(), "rank 2 and rank 0 differ in their data") {
			t.Errorf("rank %d: error %v, want one that names rank 2", rank, err)
		}
	}
}
