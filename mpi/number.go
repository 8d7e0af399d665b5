package mpi

import (
	"encoding/binary"
	"unsafe"

	"ddpbatch/mpi/internal/element"
)

// Number is an element type that collectives work on: floats, integers, bool and complex numbers, [Float16] and
// [BFloat16], and types made from them.
type Number = element.Number

// Float16 is an IEEE 754 binary16 number. Reductions compute in float32 and round each result.
type Float16 = element.F16

// BFloat16 is the upper half of a float32. Reductions compute in float32 and round each result.
type BFloat16 = element.BF16

// ToFloat16 rounds to the nearest.
func ToFloat16(f float32) Float16 { return element.ToFloat16(f) }

// ToBFloat16 rounds to the nearest.
func ToBFloat16(f float32) BFloat16 { return element.ToBFloat16(f) }

// bytesOf is the memory of s, as it goes over the wire: little-endian. Init
// refuses machines of the other kind.
func bytesOf[T Number](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

// sliceOf is the reverse, of memory that is aligned for T.
func sliceOf[T Number](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// littleEndian tells whether this machine is.
func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }
