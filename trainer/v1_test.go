package trainer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
)

// testdata/v1 is a checkpoint that 2 ranks have made before there was a second version of the format, after step 7 of oldJob: two epochs of
// five steps, with Adam and the residuals of int8.
func oldJob() Config {
	cfg := small(2, 2, 5)
	cfg.Optimizer.Kind, cfg.Optimizer.LR, cfg.DDP.Compress = "adam", 0.01, "int8"
	return cfg
}

// Checkpoints of the first version are gone on from, with as many ranks and with others.
func TestResumeFromVersion1(t *testing.T) {
	old, err := checkpoint.Open(filepath.Join("testdata", "v1"), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := old.Load(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if len(want.Tensors) < 4*3+2*4 {
		t.Fatalf("%d tensors: 4 parameters with 2 moments each, and a residual of each on 2 ranks, are more", len(want.Tensors))
	}
	for _, world := range []int{2, 1, 4} {
		path := filepath.Join(t.TempDir(), "checkpoints")
		if err := os.CopyFS(path, os.DirFS(filepath.Join("testdata", "v1"))); err != nil {
			t.Fatal(err)
		}
		errs := onRanks(t, "local", world, func(ctx context.Context, comm *mpi.Comm) error {
			dir, err := checkpoint.Open(path, checkpoint.Options{Run: "test", Attempt: 2})
			if err != nil {
				return err
			}
			tr := newTrainer(oldJob(), Env{Comm: comm, Checkpoints: dir, Resume: true})
			defer tr.close()
			if err := tr.setUp(ctx); err != nil {
				return err
			}
			if tr.at.Step != 7 || tr.resumed != 7 || tr.at.Epoch != 1 || tr.at.Done != 2 {
				t.Errorf("%d ranks go on from %+v, want the second epoch's second step", world, tr.at)
			}
			for _, a := range tr.arrays() {
				if _, _, hook := parseHookName(a.Name); hook && world != 2 {
					continue // means: see TestResidualsOfRanksThatAreGone
				}
				if !slices.Equal(a.value, floatsOf(t, want, a.Name)) {
					t.Errorf("%d ranks: %s is not what was saved", world, a.Name)
				}
			}
			_, err = tr.run(ctx)
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		dir, err := checkpoint.Open(path, checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if s, _, err := dir.Latest(t.Context()); err != nil || s.Step <= 7 {
			t.Errorf("%d ranks have saved nothing: %v", world, err)
		}
	}
}
