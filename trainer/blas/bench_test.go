package blas

import (
	"fmt"
	"testing"

	"gonum.org/v1/gonum/blas"
)

// BenchmarkProduct has the sizes of dense layers, attention (128 128 32), convolutions (16 784 9 and 32 196 144), and the bare call.
func BenchmarkProduct(b *testing.B) {
	for name, lib := range libraries(b) {
		for _, size := range [][3]int{
			{1, 1, 1}, {64, 64, 64}, {256, 256, 256}, {512, 512, 512}, {1024, 1024, 1024}, {64, 512, 784},
			{128, 128, 32}, {128, 32, 128}, {16, 784, 9}, {32, 196, 144},
		} {
			b.Run(fmt.Sprintf("%s/%dx%dx%d", name, size[0], size[1], size[2]), func(b *testing.B) {
				p := newProduct(blas.NoTrans, blas.NoTrans, size[0], size[1], size[2], 0, 1, 0)
				b.ReportAllocs()
				for b.Loop() {
					p.run(lib)
				}
				b.ReportMetric(2*float64(size[0]*size[1]*size[2])*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
