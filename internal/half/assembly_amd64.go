//go:build !race && !noasm

package half

import "golang.org/x/sys/cpu"

var assembly = cpu.X86.HasAVX2 && cpu.X86.HasF16C

// These functions must be given a multiple of 8 elements, and at least 8.

//go:noescape
func toFloat16AVX2(dst []uint16, x []float32)

//go:noescape
func fromFloat16AVX2(dst []float32, x []uint16)

//go:noescape
func roundFloat16AVX2(dst, x []float32)

//go:noescape
func toBFloat16AVX2(dst []uint16, x []float32)

//go:noescape
func fromBFloat16AVX2(dst []float32, x []uint16)

//go:noescape
func roundBFloat16AVX2(dst, x []float32)
