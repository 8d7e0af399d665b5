package nn

import (
	"testing"

	"ddpbatch/trainer/blas"
)

// The CNN of the project's benchmark, 20,490 parameters, without its optimizer; and the same with batch normalization.
func BenchmarkCNN(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchmarkCNN(b, false) })
	b.Run("batch norm", func(b *testing.B) { benchmarkCNN(b, true) })
}

func benchmarkCNN(b *testing.B, norm bool) {
	const rows = 64
	lib, info, err := blas.Open(blas.Config{Library: blas.Auto, Threads: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Log(info.Name, info.Version)
	r := source()
	model := NewCNN(CNNConfig{In: Image{1, 28, 28}, Channels: []int{16, 32}, Kernel: 3, BatchNorm: norm, Classes: 10}, r)
	var loss CrossEntropy
	pass := Pass{Training: true, BLAS: lib}
	x, labels := randomMatrix(r, rows, 28*28), make([]int, rows)
	b.ReportAllocs()
	for b.Loop() {
		ZeroGrad(model.Params())
		_, dy := loss.Loss(model.Forward(&pass, x), labels)
		model.Backward(&pass, dy, false)
	}
	b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}
