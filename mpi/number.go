package mpi

import (
	"encoding/binary"
	"unsafe"
)

// Number is an element type that collectives work on.
type Number interface {
	~float32 | ~float64 | ~int32 | ~int64 | ~uint8
}

// element is a Number's code in fingerprints. The codes are part of the wire's format.
type element uint8

const (
	float32Element element = iota + 1
	float64Element
	int32Element
	int64Element
	uint8Element
)

var elementNames = [...]string{
	float32Element: "float32",
	float64Element: "float64",
	int32Element:   "int32",
	int64Element:   "int64",
	uint8Element:   "uint8",
}

// elementOf finds the underlying type of T by its size and by whether it has fractions.
func elementOf[T Number]() element {
	fraction := T(1)/T(2) != 0
	switch size := sizeOf[T](); {
	case size == 1:
		return uint8Element
	case size == 4 && fraction:
		return float32Element
	case size == 4:
		return int32Element
	case fraction:
		return float64Element
	}
	return int64Element
}

func sizeOf[T Number]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}

// bytesOf is the memory of s, as it goes over the wire: little-endian. Init
// refuses machines of the other kind.
func bytesOf[T Number](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*sizeOf[T]())
}

// scratchOf is the inverse for memory that is aligned for every Number.
func scratchOf[T Number](words []uint64) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8/sizeOf[T]())
}

// littleEndian tells whether this machine is.
func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }
