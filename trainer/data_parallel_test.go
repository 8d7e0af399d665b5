package trainer

import (
	"context"
	"math"
	"sync/atomic"
	"testing"

	gonum "gonum.org/v1/gonum/blas"

	"ddpbatch/mpi"
	"ddpbatch/trainer/blas"
	"ddpbatch/trainer/data"
)

// counted counts the matrix products of a library.
type counted struct {
	blas.Library
	products atomic.Int64
}

func (c *counted) Sgemm(tA, tB gonum.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32,
	y []float32, ldc int) {
	c.products.Add(1)
	c.Library.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, y, ldc)
}

// All replicas of a process evaluate a part of the batch each. Their score is that of one replica for the whole batch.
func TestReplicasEvaluateAsOne(t *testing.T) {
	jobs := map[string]func() (string, Config){
		"mlp": func() (string, Config) { return "", deepJob() },
		"cnn": func() (string, Config) { return imageJob(t) },
		"gpt": func() (string, Config) { return textJob(t) },
	}
	for name, job := range jobs {
		t.Run(name, func(t *testing.T) {
			dir, cfg := job()
			cfg.Mode, cfg.Replicas = "dp", 3
			errs := onRanks(t, "local", 1, func(ctx context.Context, comm *mpi.Comm) error {
				tr := newTrainer(cfg, Env{Comm: comm, WorkDir: dir})
				defer tr.close()
				if err := tr.setUp(ctx); err != nil {
					return err
				}
				if _, err := tr.run(ctx); err != nil { // changes the running statistics
					return err
				}
				return scoreBothWays(ctx, t, tr)
			})
			if errs[0] != nil {
				t.Fatal(errs[0])
			}
		})
	}
}

// scoreBothWays compares the score of all replicas with that of the first replica alone.
func scoreBothWays(ctx context.Context, t *testing.T, tr *trainer) error {
	t.Helper()
	replicas := tr.engine.(*dataParallel).replicas
	library := &counted{Library: tr.blas}
	pass := tr.pass
	pass.Training, pass.BLAS = false, library
	for _, rows := range []int{1, 4, 7, 12} { // the 3 replicas get 1 0 0, 2 2 0, 3 3 1 and 4 4 4 rows
		var b data.Batch
		b.Fill(tr.train, []int{3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 32, 38}[:rows])
		all, err := tr.engine.score(ctx, &pass, &b)
		if err != nil {
			return err
		}
		products := library.products.Swap(0)
		one, err := replicas[0].score(ctx, &pass, &b)
		if err != nil {
			return err
		}
		// The float32 sums are in another order.
		if math.Abs(all.loss-one.loss) > 1e-5*one.loss || all.right != one.right {
			t.Errorf("%d rows: 3 replicas have %+v, one has %+v", rows, all, one)
		}
		if alone := library.products.Swap(0); rows >= 7 && tr.cfg.Model.Kind == "mlp" && products != 3*alone {
			t.Errorf("%d rows: 3 replicas take %d products, one takes %d", rows, products, alone)
		}
	}
	return nil
}
