package blas

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"
	"pgregory.net/rapid"
)

// product is one call, with matrices in memory that has gaps.
type product struct {
	tA, tB        blas.Transpose
	m, n, k       int
	alpha, beta   float32
	a, b, c       []float32
	lda, ldb, ldc int
}

// newProduct draws values in [-1, 1); where beta is 0, c is full of NaN.
func newProduct(tA, tB blas.Transpose, m, n, k, gap int, alpha, beta float32) product {
	rowsA, colsA := stored(tA, m, k)
	rowsB, colsB := stored(tB, k, n)
	p := product{tA: tA, tB: tB, m: m, n: n, k: k, alpha: alpha, beta: beta, lda: colsA + gap, ldb: colsB + gap, ldc: n + gap}
	p.a, p.b, p.c = values(rowsA*p.lda, 1), values(rowsB*p.ldb, 2), values(m*p.ldc, 3)
	if beta == 0 {
		for i := range p.c {
			p.c[i] = float32(math.NaN())
		}
	}
	return p
}

func values(length int, seed uint32) []float32 {
	x := make([]float32, length)
	for i := range x {
		seed = seed*1664525 + 1013904223
		x[i] = float32(int32(seed)) / (1 << 31)
	}
	return x
}

func (p product) run(lib Library) {
	lib.Sgemm(p.tA, p.tB, p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b, p.ldb, p.beta, p.c, p.ldc)
}

// reference is the definition in float64: what every element of c is to be, and how far a library may be from it. The bound is
// that of k+3 roundings of float32 in any order, each of a relative 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, section
// 3.1), twice over. Gaps have no value.
func (p product) reference() (want, bound []float64) {
	want, bound = make([]float64, len(p.c)), make([]float64, len(p.c))
	a, b := vectors(p.a, p.lda, p.tA, p.m, p.k), vectors(p.b, p.ldb, flip(p.tB), p.n, p.k)
	for row := range p.m {
		for col := range p.n {
			at := row*p.ldc + col
			var sum, size float64
			for l, x := range a[row] {
				sum += x * b[col][l]
				size += math.Abs(x * b[col][l])
			}
			sum *= float64(p.alpha)
			size *= math.Abs(float64(p.alpha))
			if p.beta != 0 {
				sum += float64(p.beta) * float64(p.c[at])
				size += math.Abs(float64(p.beta) * float64(p.c[at]))
			}
			want[at], bound[at] = sum, 2*float64(p.k+3)*size/(1<<24)
		}
	}
	return want, bound
}

type reporter interface{ Errorf(string, ...any) }

// check computes p, in a copy of c, and compares with its reference.
func (p product) check(t reporter, lib Library) {
	want, bound := p.reference()
	p.compare(t, lib, want, bound)
}

func (p product) compare(t reporter, lib Library, want, bound []float64) {
	before := p.c
	p.c = slices.Clone(p.c)
	p.run(lib)
	shape := fmt.Sprint(p.m, p.n, p.k, string(p.tA), string(p.tB), p.alpha, p.beta, p.lda, p.ldb, p.ldc)
	for i, got := range p.c {
		row, col := i/p.ldc, i%p.ldc
		switch {
		case col >= p.n && !sameBits(got, before[i]):
			t.Errorf("%s: the gap behind row %d was changed", shape, row)
			return
		case col < p.n && !(math.Abs(float64(got)-want[i]) <= bound[i]):
			t.Errorf("%s: element %d, %d is %v, want %v within %v", shape, row, col, got, want[i], bound[i])
			return
		}
	}
}

// vectors are the rows of op(x).
func vectors(x []float32, ld int, t blas.Transpose, rows, cols int) [][]float64 {
	all := make([][]float64, rows)
	for i := range all {
		all[i] = make([]float64, cols)
		for j := range all[i] {
			all[i][j] = float64(from(x, ld, t, i, j)[0])
		}
	}
	return all
}

func flip(t blas.Transpose) blas.Transpose {
	if t == blas.NoTrans {
		return blas.Trans
	}
	return blas.NoTrans
}

var transposes = []blas.Transpose{blas.NoTrans, blas.Trans, blas.ConjTrans}

func TestDefinition(t *testing.T) {
	for name, lib := range libraries(t) {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			dim := rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(0, 80))
			newProduct(rapid.SampledFrom(transposes).Draw(t, "tA"), rapid.SampledFrom(transposes).Draw(t, "tB"),
				dim.Draw(t, "m"), dim.Draw(t, "n"), dim.Draw(t, "k"), rapid.IntRange(0, 9).Draw(t, "gap"),
				rapid.SampledFrom([]float32{1, 0, -0.5, 3}).Draw(t, "alpha"), rapid.SampledFrom([]float32{0, 1, -2}).Draw(t, "beta")).check(t, lib)
		}))
	}
}

// TestLarge has sizes on both sides of what libraries, and Go's blocks, cut at.
func TestLarge(t *testing.T) {
	all := libraries(t)
	for _, p := range []product{
		newProduct(blas.NoTrans, blas.NoTrans, 65, 193, 1025, 1, 1, 1),
		newProduct(blas.Trans, blas.Trans, 70, 200, 130, 1, 1, 0),
		newProduct(blas.NoTrans, blas.Trans, 1, 70, 2049, 1, 1, 1),
		newProduct(blas.Trans, blas.NoTrans, 70, 1, 1025, 1, 1, -1),
	} {
		want, bound := p.reference()
		for name, lib := range all {
			t.Run(name, func(t *testing.T) { p.compare(t, lib, want, bound) })
		}
	}
}

// tooLarge is no constant, which would not compile where int has 32 bits.
var tooLarge int64 = 1 << 31

func TestPanics(t *testing.T) {
	x := make([]float32, 12)
	const n, tr = blas.NoTrans, blas.Trans
	for name, lib := range libraries(t) {
		for want, call := range map[string]func(){
			"blas: unknown transpose":          func() { lib.Sgemm('X', n, 3, 4, 2, 1, x, 2, x, 4, 0, x, 4) },
			"blas: negative dimension":         func() { lib.Sgemm(n, n, 3, -4, 2, 1, x, 2, x, 4, 0, x, 4) },
			"blas: a does not hold its matrix": func() { lib.Sgemm(n, n, 3, 4, 2, 1, x[:5], 2, x, 4, 0, x, 4) },
			"blas: b does not hold its matrix": func() { lib.Sgemm(n, tr, 3, 4, 2, 1, x, 2, x, 1, 0, x, 4) },
			"blas: c does not hold its matrix": func() { lib.Sgemm(n, n, 3, 4, 2, 1, x, 2, x, 4, 0, x[:11], 4) },
			"blas: dimension above 2^31-1":     func() { lib.Sgemm(n, n, 1, 1, 1, 1, x, int(tooLarge), x, 1, 0, x, 1) },
		} {
			func() {
				defer func() {
					if got := recover(); got != want {
						t.Errorf("%s panicked with %v, want %q", name, got, want)
					}
				}()
				call()
			}()
		}
	}
}

func sameBits(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }
