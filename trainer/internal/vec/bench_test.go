package vec

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// benchmarks lists the kernels, each with the number of arrays that it reads and writes, for bytes per second.
var benchmarks = []struct {
	name          string
	loads, stores int
	run           func(s *kernelSet, a, b, c, d []float32)
}{
	{"add", 2, 1, func(s *kernelSet, a, b, _, _ []float32) { s.add(a, b) }},
	{"addTo", 2, 1, func(s *kernelSet, a, b, c, _ []float32) { s.addTo(a, b, c) }},
	{"mul", 2, 1, func(s *kernelSet, a, b, c, _ []float32) { s.mul(a, b, c) }},
	{"scale", 1, 1, func(s *kernelSet, a, _, _, _ []float32) { s.scale(a, 1) }},
	{"axpy", 2, 1, func(s *kernelSet, a, b, _, _ []float32) { s.axpy(a, 0.1, b) }},
	{"sum", 1, 0, func(s *kernelSet, a, _, _, _ []float32) { s.sum(a) }},
	{"dot", 2, 0, func(s *kernelSet, a, b, _, _ []float32) { s.dot(a, b) }},
	{"max", 1, 0, func(s *kernelSet, a, _, _, _ []float32) { s.max(a) }},
	{"finite", 1, 0, func(s *kernelSet, a, _, _, _ []float32) { s.finite(a) }},
	{"relu", 1, 1, func(s *kernelSet, a, b, _, _ []float32) { s.relu(a, b) }},
	{"reluGrad", 2, 1, func(s *kernelSet, a, b, c, _ []float32) { s.reluGrad(a, b, c) }},
	{"gelu", 1, 1, func(s *kernelSet, a, b, _, _ []float32) { s.gelu(a, b) }},
	{"geluGrad", 2, 1, func(s *kernelSet, a, b, c, _ []float32) { s.geluGrad(a, b, c) }},
	{"tanh", 1, 1, func(s *kernelSet, a, b, _, _ []float32) { s.tanh(a, b) }},
	{"tanhGrad", 2, 1, func(s *kernelSet, a, b, c, _ []float32) { s.tanhGrad(a, b, c) }},
	{"expSum", 1, 1, func(s *kernelSet, a, b, _, _ []float32) { s.expSum(a, b, 0) }},
	{"sgd", 2, 1, func(s *kernelSet, a, b, _, _ []float32) { s.sgd(a, b, 0, 0) }},
	{"sgdMomentum", 3, 2, func(s *kernelSet, a, b, c, _ []float32) {
		s.sgdMomentum(a, b, c, sgdStep{momentum: 0.5, rest: 1})
	}},
	{"adam", 4, 3, func(s *kernelSet, a, b, c, d []float32) {
		s.adam(a, b, c, d, AdamStep{Shrink: 1, Beta1: 0.5, Beta2: 1, Rest1: 0.5, Rest2: 0.001, Root: 1, Eps: 1})
	}},
}

// BenchmarkKernels runs every kernel of every set on arrays in the first-level cache, in the second-level cache, and in
// memory. The bytes are those of the float32 arrays.
func BenchmarkKernels(b *testing.B) {
	for _, k := range benchmarks {
		for _, s := range implementations() {
			for _, n := range []int{2 << 10, 32 << 10, 4 << 20} {
				b.Run(fmt.Sprintf("%s/%s/%d", k.name, s.name, n), func(b *testing.B) {
					rng := rand.New(rand.NewPCG(1, 2))
					x, y, z, u := normals(rng, n), normals(rng, n), normals(rng, n), ones(n)
					b.SetBytes(int64(4 * (k.loads + k.stores) * n))
					b.ReportAllocs()
					for b.Loop() {
						k.run(s, x, y, z, u)
					}
					elements(b, n)
				})
			}
		}
	}
}

// BenchmarkRows runs the functions that work on the rows of a GPT: 1024 rows of 128 values, or of 512 for the biases.
func BenchmarkRows(b *testing.B) {
	const rows = 1024
	rng := rand.New(rand.NewPCG(1, 2))
	x, dy := normals(rng, rows*512), normals(rng, rows*512)
	y, row, gain, bias := make([]float32, rows*512), make([]float32, 512), ones(512), ones(512)
	each := func(f func(y, x, dy []float32)) func() {
		return func() {
			for i := 0; i < rows*128; i += 128 {
				f(y[i:i+128], x[i:i+128], dy[i:i+128])
			}
		}
	}
	for _, k := range []struct {
		name        string
		cols, bytes int
		run         func()
	}{
		{"Softmax", 128, 8, each(func(y, x, _ []float32) { Softmax(y, x) })},
		{"SoftmaxGrad", 128, 12, each(SoftmaxGrad)},
		{"Normalize", 128, 8, each(func(y, x, _ []float32) { Normalize(y, x, gain[:128], bias[:128], 1e-5) })},
		{"NormalizeGrad", 128, 12, each(func(y, x, dy []float32) {
			NormalizeGrad(y, row[:128], row[128:256], x, dy, gain[:128], 0, 1)
		})},
		{"SumRows", 512, 4, func() { SumRows(row, x) }},
	} {
		b.Run(k.name, func(b *testing.B) {
			b.SetBytes(int64(rows * k.cols * k.bytes))
			b.ReportAllocs()
			for b.Loop() {
				k.run()
			}
			elements(b, rows*k.cols)
		})
	}
}

func elements(b *testing.B, n int) {
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gelem/s")
}
