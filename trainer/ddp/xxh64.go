package ddp

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// The constants of XXH64.
const (
	prime1 uint64 = 0x9E3779B185EBCA87
	prime2 uint64 = 0xC2B2AE3D27D4EB4F
	prime3 uint64 = 0x165667B19E3779F9
	prime4 uint64 = 0x85EBCA77C2B2AE63
	prime5 uint64 = 0x27D4EB2F165667C5
)

// digestOf is the XXH64 of x as it lies in memory, with seed 0 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md): fast, and enough against
// accidents.
func digestOf(x []float32) uint64 {
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
	n := uint64(len(data))
	h := prime5
	if n >= 32 {
		seed := prime1 // a variable, as the sum below wraps around
		a, b, c, d := seed+prime2, prime2, uint64(0), -seed
		for ; len(data) >= 32; data = data[32:] {
			a = round64(a, binary.NativeEndian.Uint64(data[0:]))
			b = round64(b, binary.NativeEndian.Uint64(data[8:]))
			c = round64(c, binary.NativeEndian.Uint64(data[16:]))
			d = round64(d, binary.NativeEndian.Uint64(data[24:]))
		}
		h = bits.RotateLeft64(a, 1) + bits.RotateLeft64(b, 7) + bits.RotateLeft64(c, 12) + bits.RotateLeft64(d, 18)
		for _, lane := range [...]uint64{a, b, c, d} {
			h = (h^round64(0, lane))*prime1 + prime4
		}
	}
	h += n
	for ; len(data) >= 8; data = data[8:] {
		h = bits.RotateLeft64(h^round64(0, binary.NativeEndian.Uint64(data)), 27)*prime1 + prime4
	}
	if len(data) == 4 {
		h = bits.RotateLeft64(h^uint64(binary.NativeEndian.Uint32(data))*prime1, 23)*prime2 + prime3
	}
	h = (h ^ h>>33) * prime2
	h = (h ^ h>>29) * prime3
	return h ^ h>>32
}

func round64(lane, word uint64) uint64 {
	return bits.RotateLeft64(lane+word*prime2, 31) * prime1
}
