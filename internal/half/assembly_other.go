//go:build !amd64 || race || noasm

package half

const assembly = false

// These are never called.
var (
	toFloat16AVX2, toBFloat16AVX2       func(dst []uint16, x []float32)
	fromFloat16AVX2, fromBFloat16AVX2   func(dst []float32, x []uint16)
	roundFloat16AVX2, roundBFloat16AVX2 func(dst, x []float32)
)
