package chunk

import "math/bits"

// split8 splits elements of 8 bytes, 8 at a time: a square of bytes that is transposed.
func split8(p *planes, src []byte, rotate uint) {
	n := len(src) / 8
	i := 0
	for ; i+8 <= n; i += 8 {
		var x [8]uint64
		for k := range x {
			x[k] = bits.RotateLeft64(load(src, 8*(i+k)), int(rotate))
		}
		transpose(&x)
		for k := range x {
			store(p[k], i, x[k])
		}
	}
	splitEach(p, src, i, Layout{Width: 8, Float: rotate == 1})
}

// join8 is the inverse of split8.
func join8(dst []byte, p *planes, rotate uint) {
	n := len(dst) / 8
	i := 0
	for ; i+8 <= n; i += 8 {
		var x [8]uint64
		for k := range x {
			x[k] = load(p[k], i)
		}
		transpose(&x)
		for k := range x {
			store(dst, 8*(i+k), bits.RotateLeft64(x[k], -int(rotate)))
		}
	}
	joinEach(dst, p, i, Layout{Width: 8, Float: rotate == 1})
}

// transpose swaps byte j of x[i] with byte i of x[j], for all i and j: first quarters of the square, then quarters of
// those, then bytes (Hacker's Delight, 7-3).
func transpose(x *[8]uint64) {
	for i := range 4 {
		swap(&x[i], &x[i+4], 32, lowWord)
	}
	for i := range 2 {
		swap(&x[i], &x[i+2], 16, evenHalves)
		swap(&x[i+4], &x[i+6], 16, evenHalves)
	}
	for i := 0; i < 8; i += 2 {
		swap(&x[i], &x[i+1], 8, evenBytes)
	}
}

func swap(a, b *uint64, shift uint, mask uint64) {
	t := (*a>>shift ^ *b) & mask
	*a ^= t << shift
	*b ^= t
}
