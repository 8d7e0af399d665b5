package nn

import (
	"testing"
	"time"

	"gonum.org/v1/gonum/blas"

	tblas "ddpbatch/trainer/blas"
)

// clocked is a library that adds up the time in its products.
type clocked struct {
	tblas.Library
	spent time.Duration
}

func (c *clocked) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, out []float32, ldc int) {
	start := time.Now()
	c.Library.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, out, ldc)
	c.spent += time.Since(start)
}

// Forward, loss and backward of the benchmarks' GPT, 8 sequences at a time, with the site's library. Products are 5.7 GFLOP.
func BenchmarkGPT(b *testing.B) {
	library, info, err := tblas.Open(tblas.Config{Library: tblas.Auto, Threads: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Log(info)
	lib := &clocked{Library: library}
	pass := Pass{Training: true, BLAS: lib}
	model := NewGPT(gptBench, source())
	var loss CrossEntropy
	x, labels := symbols(gptBench, 8), make([]int, 8*gptBench.Context)
	step := func() {
		ZeroGrad(model.Params())
		_, dy := loss.Loss(model.Forward(&pass, x), labels)
		model.Backward(&pass, dy, false)
	}
	step()
	lib.spent = 0
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
	b.ReportMetric(8*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
	b.ReportMetric(100*lib.spent.Seconds()/b.Elapsed().Seconds(), "%products")
}
