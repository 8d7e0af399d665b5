package data

import (
	"encoding/binary"
	"unsafe"
)

// littleEndian tells whether this machine keeps numbers as files do here.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// number is what arrays in files are made of.
type number interface{ float32 | int32 }

// numbersOf returns the little-endian numbers in b: b's own memory where machine and alignment allow it, else a
// copy. What does not fill a number at the end is left out.
func numbersOf[T number](b []byte) []T {
	n := len(b) / 4
	if n == 0 {
		return nil
	}
	if p := unsafe.Pointer(unsafe.SliceData(b)); littleEndian && uintptr(p)%4 == 0 {
		return unsafe.Slice((*T)(p), n)
	}
	v := make([]T, n)
	// It fails only for types without a fixed size.
	_, _ = binary.Decode(b[:4*n], binary.LittleEndian, v)
	return v
}

// bytesOf returns the numbers of v as a file holds them, little-endian: v's own memory where the machine
// allows it, else a copy.
func bytesOf[T number](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	if littleEndian {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
	}
	b, _ := binary.Append(nil, binary.LittleEndian, v)
	return b
}
