//go:build amd64 || arm64

package element

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

// assembly returns routines if the CPU can run them. On amd64 they need AVX2, and the half-precision conversions of F16C, which is
// older. docs/adr/0005 has the results of trying AVX-512. On arm64 they need NEON, which every CPU that runs Go has.
func assembly() routineSet {
	if runtime.GOARCH == "arm64" || cpu.X86.HasAVX2 && cpu.X86.HasF16C {
		return routines
	}
	return routineSet{}
}

// routines are those of the .s files. Signed and unsigned integers have the same sum. The sum of complex numbers is that of their
// parts.
var routines = routineSet{
	sum: sums{
		Float32: sumFloat32, Complex64: sumFloat32,
		Float64: sumFloat64, Complex128: sumFloat64,
		Int8: sumInt8, Uint8: sumInt8,
		Int16: sumInt16, Uint16: sumInt16,
		Int32: sumInt32, Uint32: sumInt32,
		Int64: sumInt64, Uint64: sumInt64,
		Float16: sumFloat16, BFloat16: sumBFloat16,
	},
	pair32: pairFloat32, pair64: pairFloat64,
	divide32: divideFloat32, divide64: divideFloat64,
}

//go:noescape
func sumFloat32(dst, a, b *byte, n int)

//go:noescape
func sumFloat64(dst, a, b *byte, n int)

//go:noescape
func sumInt8(dst, a, b *byte, n int)

//go:noescape
func sumInt16(dst, a, b *byte, n int)

//go:noescape
func sumInt32(dst, a, b *byte, n int)

//go:noescape
func sumInt64(dst, a, b *byte, n int)

//go:noescape
func sumFloat16(dst, a, b *byte, n int)

//go:noescape
func sumBFloat16(dst, a, b *byte, n int)

//go:noescape
func pairFloat32(dst, dst2, a, b *byte, n int)

//go:noescape
func pairFloat64(dst, dst2, a, b *byte, n int)

//go:noescape
func divideFloat32(dst *byte, n int, by float32)

//go:noescape
func divideFloat64(dst *byte, n int, by float64)
