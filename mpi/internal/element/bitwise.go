package element

import "encoding/binary"

// Bitwise operations are the same for every type, so they go by words of 8 bytes.

func bitAnd(dst, a, b []byte) {
	d, x, y := operands[byte](dst, a, b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		binary.NativeEndian.PutUint64(d, binary.NativeEndian.Uint64(x)&binary.NativeEndian.Uint64(y))
		d, x, y = d[8:], x[8:], y[8:]
	}
	for i := range d {
		d[i] = x[i] & y[i]
	}
}

func bitOr(dst, a, b []byte) {
	d, x, y := operands[byte](dst, a, b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		binary.NativeEndian.PutUint64(d, binary.NativeEndian.Uint64(x)|binary.NativeEndian.Uint64(y))
		d, x, y = d[8:], x[8:], y[8:]
	}
	for i := range d {
		d[i] = x[i] | y[i]
	}
}

func bitXor(dst, a, b []byte) {
	d, x, y := operands[byte](dst, a, b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		binary.NativeEndian.PutUint64(d, binary.NativeEndian.Uint64(x)^binary.NativeEndian.Uint64(y))
		d, x, y = d[8:], x[8:], y[8:]
	}
	for i := range d {
		d[i] = x[i] ^ y[i]
	}
}
