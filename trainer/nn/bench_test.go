package nn

import (
	"fmt"
	"testing"

	"gonum.org/v1/gonum/blas"
)

// BenchmarkProduct computes the three products of a layer from 784 to 128 features with a batch of 64.
func BenchmarkProduct(b *testing.B) {
	const rows, in, out = 64, 784, 128
	var pass Pass
	r := source()
	x, w, y := randomMatrix(r, rows, in), randomMatrix(r, out, in), randomMatrix(r, rows, out)
	for _, c := range []struct {
		name string
		c, a Matrix
		ta   blas.Transpose
		b    Matrix
		tb   blas.Transpose
	}{
		{"forward", y, x, blas.NoTrans, w, blas.Trans},
		{"weight gradient", w, y, blas.Trans, x, blas.NoTrans},
		{"input gradient", x, y, blas.NoTrans, w, blas.NoTrans},
	} {
		c.c = NewMatrix(c.c.Rows, c.c.Cols)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				pass.Product(c.c, c.a, c.ta, c.b, c.tb, true)
			}
			b.ReportMetric(2*rows*in*out*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

// BenchmarkMLP runs Forward, the loss and Backward of an MLP, without an optimizer.
func BenchmarkMLP(b *testing.B) {
	for _, rows := range []int{1, 64, 256} {
		b.Run(fmt.Sprint("batch", rows), func(b *testing.B) {
			r := source()
			model := NewSequential(NewLinear(784, 128, r), NewReLU(), NewLinear(128, 10, r))
			var loss CrossEntropy
			var pass Pass
			x, labels := randomMatrix(r, rows, 784), make([]int, rows)
			b.ReportAllocs()
			for b.Loop() {
				ZeroGrad(model.Params())
				_, dy := loss.Loss(model.Forward(&pass, x), labels)
				model.Backward(&pass, dy, false)
			}
		})
	}
}
