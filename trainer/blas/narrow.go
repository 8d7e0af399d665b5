package blas

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"gonum.org/v1/gonum/blas"

	"ddpbatch/internal/half"
)

// Precision is the type of the values that a product multiplies. Sums and results are float32.
type Precision string

// The precisions.
const (
	Float32  Precision = "float32"
	BFloat16 Precision = "bfloat16"
	Float16  Precision = "float16"
)

// Narrow returns lib with a and b rounded to p before they are multiplied, to nearest, ties to even; values too large for float16 become
// infinite. how describes in a few words how that is done: bfloat16 in the narrow type if both the library (OpenBLAS's
// sbgemm_) and the machine support it, otherwise in float32 on rounded values, which is not faster but shows what the
// precision does to training. With Float32 it returns lib itself. It panics if p is not one of the constants.
//
// The result is safe for concurrent use. Between calls it keeps rounded copies of a and b, of the largest so far for
// each concurrent caller.
func Narrow(lib Library, p Precision) (narrow Library, how string) {
	return narrowOn(lib, p, hasBFloat16)
}

// bfloat16Library is a Library that may support products of bfloat16.
type bfloat16Library interface {
	Library
	hasBFloat16() bool
	bfloat16(tA, tB blas.Transpose, m, n, k int, alpha float32, a []uint16, lda int, b []uint16, ldb int,
		beta float32, c []float32, ldc int)
}

// narrowOn is Narrow on a machine; machine reports whether it has instructions for bfloat16.
func narrowOn(lib Library, p Precision, machine func() bool) (Library, string) {
	why := ""
	switch p {
	case Float32:
		return lib, "float32"
	case Float16:
		why = "no library here has float16 products"
		return newRounded(lib, half.RoundFloat16s, lib.Sgemm), onRounded(p, why)
	case BFloat16:
		native, ok := lib.(bfloat16Library)
		switch {
		case !ok || !native.hasBFloat16():
			why = "the library has no sbgemm_"
		case !machine():
			why = "the machine has no instructions for bfloat16"
		default:
			narrow := newRounded(lib, half.ToBFloat16s, native.bfloat16)
			if verify(narrow) == nil {
				return narrow, "bfloat16 by sbgemm_"
			}
			why = "the library's sbgemm_ gives wrong results"
		}
		return newRounded(lib, half.RoundBFloat16s, lib.Sgemm), onRounded(p, why)
	}
	panic("blas: unknown precision")
}

func onRounded(p Precision, why string) string {
	return fmt.Sprintf("float32 on values rounded to %s, as %s", p, why)
}

// rounded is a Library that converts a and b, then multiplies. E is the converted type: float32 with rounded values, or the 16
// bits of a bfloat16.
type rounded[E float32 | uint16] struct {
	lib      Library // for empty products
	convert  func(dst []E, x []float32)
	multiply func(tA, tB blas.Transpose, m, n, k int, alpha float32, a []E, lda int, b []E, ldb int, beta float32, c []float32, ldc int)

	copies pool[copies[E]]
}

// copies holds the converted a and b of one call.
type copies[E float32 | uint16] struct {
	a, b []E
}

func newRounded[E float32 | uint16](lib Library, convert func([]E, []float32),
	multiply func(blas.Transpose, blas.Transpose, int, int, int, float32, []E, int, []E, int, float32, []float32, int)) *rounded[E] {
	return &rounded[E]{lib: lib, convert: convert, multiply: multiply}
}

// Sgemm implements Library.
func (r *rounded[E]) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32,
	c []float32, ldc int) {
	if m <= 0 || n <= 0 || k <= 0 {
		r.lib.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	check(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	s := r.copies.take()
	rowsA, colsA := stored(tA, m, k)
	rowsB, colsB := stored(tB, k, n)
	s.a = r.pack(s.a, a, rowsA, colsA, lda)
	s.b = r.pack(s.b, b, rowsB, colsB, ldb)
	r.multiply(tA, tB, m, n, k, alpha, s.a, colsA, s.b, colsB, beta, c, ldc)
	r.copies.put(s)
}

// pack converts a matrix into dst, row after row without gaps. It grows dst if it is too small.
func (r *rounded[E]) pack(dst []E, x []float32, rows, cols, ld int) []E {
	if cap(dst) < rows*cols {
		dst = make([]E, rows*cols)
	}
	dst = dst[:rows*cols]
	if ld == cols {
		r.convert(dst, x[:rows*cols])
		return dst
	}
	for i := range rows {
		r.convert(dst[i*cols:][:cols], x[i*ld:][:cols])
	}
	return dst
}

// hasBFloat16 reports whether the machine multiplies bfloat16 in hardware. Libraries have sbgemm_ for other machines too, far slower than
// sgemm_.
func hasBFloat16() bool {
	text, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && namesBFloat16(string(text))
}

// namesBFloat16 looks at the flags of the first CPU in /proc/cpuinfo: "flags" on amd64, "Features" on arm64.
func namesBFloat16(cpuinfo string) bool {
	for line := range strings.Lines(cpuinfo) {
		key, flags, ok := strings.Cut(line, ":")
		if key = strings.TrimSpace(key); !ok || (key != "flags" && key != "Features") {
			continue
		}
		return slices.ContainsFunc(strings.Fields(flags), func(flag string) bool {
			return flag == "avx512_bf16" || flag == "amx_bf16" || flag == "bf16"
		})
	}
	return false
}
