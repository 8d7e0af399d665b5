package trainer

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	gonum "gonum.org/v1/gonum/blas"

	"ddpbatch/trainer/blas"
)

// clocked is a library that adds up the time in its products.
type clocked struct {
	blas.Library
	spent time.Duration
}

func (c *clocked) Sgemm(tA, tB gonum.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, out []float32, ldc int) {
	start := time.Now()
	c.Library.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, out, ldc)
	c.spent += time.Since(start)
}

// BenchmarkTraining has the models of scripts/bench-train, whose "outside products" it gives.
func BenchmarkTraining(b *testing.B) {
	b.Run("library", func(b *testing.B) {
		_, info, err := blas.Open(blas.Config{Library: blas.Auto})
		if err != nil {
			b.Fatal(err)
		}
		b.Logf("matrix products: %v", info)
	})
	for _, model := range []string{"dense", "mlp", "cnn", "gpt"} {
		b.Run(model, func(b *testing.B) {
			tr := stepping(b, benchmarkConfig(b, model))
			products := &clocked{Library: tr.blas}
			tr.pass.BLAS = products
			trainOn := func() {
				if tr.stepsLeft() == 0 {
					tr.at = tr.at.nextEpoch()
					tr.beginEpoch()
				}
				if err := tr.step(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			trainOn() // buffers get their sizes
			products.spent = 0
			b.ReportAllocs()
			for b.Loop() {
				trainOn()
			}
			b.ReportMetric(float64(b.N*tr.cfg.BatchSize)/b.Elapsed().Seconds(), "samples/s")
			b.ReportMetric(100*(1-products.spent.Seconds()/b.Elapsed().Seconds()), "%outside")
		})
	}
}

// benchmarkConfig is a job of a model, on noise.
func benchmarkConfig(b *testing.B, model string) Config {
	const images, sequences = 1024, 64
	cfg := DefaultConfig()
	cfg.Optimizer.LR, cfg.Optimizer.Momentum = 0.01, 0.9
	cfg.Data.Kind, cfg.Data.Shuffle = "npy", false
	cfg.Model.Kind = model
	dir := b.TempDir()
	cfg.Data.InputFile, cfg.Data.TargetFile = filepath.Join(dir, "x.npy"), filepath.Join(dir, "y.npy")
	switch model {
	case "dense":
		cfg.BatchSize, cfg.Loss = 32, "mse"
		writeNPY(b, dir, "x.npy", []int{4096, 20}, uniform(4096*20))
		writeNPY(b, dir, "y.npy", []int{4096, 1}, uniform(4096))
	case "mlp", "cnn":
		labels := make([]int64, images)
		for i := range labels {
			labels[i] = int64(i % 10)
		}
		if model == "mlp" {
			cfg.Model.Hidden = []int{512, 256}
		}
		writeNPY(b, dir, "x.npy", []int{images, 1, 28, 28}, uniform(images*28*28))
		writeNPY(b, dir, "y.npy", []int{images}, labels)
	case "gpt":
		cfg.BatchSize = 8
		cfg.Data.Kind, cfg.Data.Path = "text", filepath.Join(dir, "text")
		text := make([]byte, sequences*cfg.Model.Context+1)
		for i := range text {
			text[i] = byte(mix(uint64(i), 1))
		}
		if err := os.WriteFile(cfg.Data.Path, text, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return cfg
}

// uniform is n numbers from -1 to 1, the same in every run.
func uniform(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(mix(uint64(i), 0)>>40)/(1<<23) - 1
	}
	return x
}
