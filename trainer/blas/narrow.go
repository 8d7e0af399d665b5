package blas

import (
	"fmt"

	"gonum.org/v1/gonum/blas"

	"ddpbatch/trainer/internal/vec"
)

// Precision is the type that the values which a product multiplies have. What it adds up, and its result, are float32.
type Precision string

// The precisions.
const (
	Float32  Precision = "float32"
	BFloat16 Precision = "bfloat16"
	Float16  Precision = "float16"
)

// Narrow returns lib with a and b rounded to p before they are multiplied, to nearest, ties to even; values too large for float16 become
// infinite. How says in a few words how that is done: bfloat16 in the narrow type where both the library (OpenBLAS's
// sbgemm_) and the machine have it, otherwise in float32 on rounded values, which gains no speed but shows what the
// precision does to training. With Float32 it is lib itself. It panics where p is none of the constants.
//
// What Narrow returns is safe for concurrent use. It keeps rounded copies of a and b between calls, of the largest so far for
// each of the callers that there have been at a time.
func Narrow(lib Library, p Precision) (narrow Library, how string) {
	return narrowOn(lib, p, hasBFloat16)
}

// bfloat16Library is a Library that may know products of bfloat16.
type bfloat16Library interface {
	Library
	hasBFloat16() bool
	bfloat16(tA, tB blas.Transpose, m, n, k int, alpha float32, a []uint16, lda int, b []uint16, ldb int, beta float32, c []float32, ldc int)
}

// narrowOn is Narrow on a machine that has instructions for bfloat16, or not.
func narrowOn(lib Library, p Precision, machine func() bool) (Library, string) {
	why := ""
	switch p {
	case Float32:
		return lib, "float32"
	case Float16:
		why = "no library here has float16 products"
		return newRounded(lib, vec.RoundFloat16, lib.Sgemm), onRounded(p, why)
	case BFloat16:
		native, ok := lib.(bfloat16Library)
		switch {
		case !ok || !native.hasBFloat16():
			why = "the library has no sbgemm_"
		case !machine():
			why = "the machine has no instructions for bfloat16"
		default:
			narrow := newRounded(lib, vec.ToBFloat16, native.bfloat16)
			if verify(narrow) == nil {
				return narrow, "bfloat16 by sbgemm_"
			}
			why = "the library's sbgemm_ gives wrong results"
		}
		return newRounded(lib, vec.RoundBFloat16, lib.Sgemm), onRounded(p, why)
	}
	panic("blas: unknown precision")
}

func onRounded(p Precision, why string) string {
	return fmt.Sprintf("float32 on values rounded to %s, as %s", p, why)
}
