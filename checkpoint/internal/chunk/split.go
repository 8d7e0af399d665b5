package chunk

import (
	"encoding/binary"
	"math/bits"
)

// kernels move elements to planes and back, for elements of 2 and 4 bytes. If entropy coding saves nothing, an encoder and a decoder
// spend their time in them. rotate is 1 or 0: the number of bits by which split rotates elements to the
// left, and join rotates them back.
type kernels struct {
	split2 func(p0, p1, src []byte, rotate uint)
	split4 func(p0, p1, p2, p3, src []byte, rotate uint)
	join2  func(dst, p0, p1 []byte, rotate uint)
	join4  func(dst, p0, p1, p2, p3 []byte, rotate uint)
}

// portable runs on CPUs without assembly, and the assembly is tested against it.
var portable = kernels{split2: split2, split4: split4, join2: join2, join4: join4}

// best holds the fastest kernels for this CPU.
var best = choose()

// rotation returns by how many bits elements of the layout are rotated.
func (l Layout) rotation() uint {
	if l.Float {
		return 1
	}
	return 0
}

// split makes the planes of src. Each has len(src)/Width bytes.
func split(p *planes, src []byte, l Layout, k *kernels) {
	r := l.rotation()
	switch l.Width {
	case 1:
		splitEach(p, src, 0, l)
	case 2:
		k.split2(p[0], p[1], src, r)
	case 4:
		k.split4(p[0], p[1], p[2], p[3], src, r)
	case 8:
		split8(p, src, r)
	}
}

// join fills dst from planes of len(dst)/Width bytes each. It is the inverse of split.
func join(dst []byte, p *planes, l Layout, k *kernels) {
	r := l.rotation()
	switch l.Width {
	case 1:
		joinEach(dst, p, 0, l)
	case 2:
		k.join2(dst, p[0], p[1], r)
	case 4:
		k.join4(dst, p[0], p[1], p[2], p[3], r)
	case 8:
		join8(dst, p, r)
	}
}

// splitEach splits the elements from number i on, one after the other. It handles the elements that the faster loops leave
// over, and defines their result.
func splitEach(p *planes, src []byte, i int, l Layout) {
	w, r := l.Width, l.rotation()
	for ; i < len(src)/w; i++ {
		var x uint64
		for k := w - 1; k >= 0; k-- {
			x = x<<8 | uint64(src[i*w+k])
		}
		x = bits.RotateLeft64(x, int(r))
		x |= x >> (8 * w) & uint64(r) // the top bit of an element that is shorter than x
		for k := range w {
			p[k][i] = byte(x >> (8 * k))
		}
	}
}

// joinEach is the inverse of splitEach.
func joinEach(dst []byte, p *planes, i int, l Layout) {
	w, r := l.Width, l.rotation()
	for ; i < len(dst)/w; i++ {
		var x uint64
		for k := w - 1; k >= 0; k-- {
			x = x<<8 | uint64(p[k][i])
		}
		x = x>>r | x&uint64(r)<<(8*w-1)
		for k := range w {
			dst[i*w+k] = byte(x >> (8 * k))
		}
	}
}

// The loops from here on take 8 elements at a time as 64-bit words, which hold 4 elements of 2 bytes or 2 of 4 bytes. They
// need only general registers, so they run on every CPU.

const (
	evenBytes  = 0x00ff00ff00ff00ff
	evenHalves = 0x0000ffff0000ffff
	lowWord    = 0x00000000ffffffff
	lowBits2   = 0x0001000100010001 // the lowest bit of each element
	lowBits4   = 0x0000000100000001
)

func load(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i : i+8 : i+8]) }

func store(b []byte, i int, x uint64) { binary.LittleEndian.PutUint64(b[i:i+8:i+8], x) }

// evens moves the even bytes of x together, into the lower 4 bytes.
func evens(x uint64) uint64 {
	x &= evenBytes
	x = (x | x>>8) & evenHalves
	return (x | x>>16) & lowWord
}

// spread is the inverse of evens: it moves the lower 4 bytes to the even ones.
func spread(x uint64) uint64 {
	x = (x | x<<16) & evenHalves
	return (x | x<<8) & evenBytes
}

func split2(p0, p1, src []byte, rotate uint) {
	n := len(src) / 2
	low := uint64(lowBits2) * uint64(rotate)
	i := 0
	for ; i+8 <= n; i += 8 {
		a, b := load(src, 2*i), load(src, 2*i+8)
		a = a<<(rotate&1)&^low | a>>15&low
		b = b<<(rotate&1)&^low | b>>15&low
		store(p0, i, evens(a)|evens(b)<<32)
		store(p1, i, evens(a>>8)|evens(b>>8)<<32)
	}
	splitEach(&planes{p0, p1}, src, i, Layout{Width: 2, Float: rotate == 1})
}

func join2(dst, p0, p1 []byte, rotate uint) {
	n := len(dst) / 2
	high := uint64(lowBits2) * uint64(rotate) << 15
	i := 0
	for ; i+8 <= n; i += 8 {
		x, y := load(p0, i), load(p1, i)
		a := spread(x&lowWord) | spread(y&lowWord)<<8
		b := spread(x>>32) | spread(y>>32)<<8
		store(dst, 2*i, a>>(rotate&1)&^high|a<<15&high)
		store(dst, 2*i+8, b>>(rotate&1)&^high|b<<15&high)
	}
	joinEach(dst, &planes{p0, p1}, i, Layout{Width: 2, Float: rotate == 1})
}

// halves4 takes elements 0, 1 and 2, 3. It returns the bytes of the even planes, 4 of plane 0 below 4 of plane 2,
// and those of the odd planes.
func halves4(a, b uint64) (even, odd uint64) {
	u := a&lowWord | b<<32 // elements 0, 2
	v := a>>32 | b&^lowWord
	s := u&evenBytes | v&evenBytes<<8 // of planes 0 and 2 in turn, 2 bytes each
	t := u>>8&evenBytes | v&^evenBytes
	return pairs(s), pairs(t)
}

// pairs moves the even 16-bit parts of x to its lower half, and the odd ones to its upper half.
func pairs(x uint64) uint64 {
	e, o := x&evenHalves, x>>16&evenHalves
	return (e|e>>16)&lowWord | (o|o>>16)<<32
}

// unpairs is the inverse of pairs.
func unpairs(x uint64) uint64 {
	e, o := x&lowWord, x>>32
	return (e|e<<16)&evenHalves | (o|o<<16)&evenHalves<<16
}

func split4(p0, p1, p2, p3, src []byte, rotate uint) {
	n := len(src) / 4
	low := uint64(lowBits4) * uint64(rotate)
	i := 0
	for ; i+8 <= n; i += 8 {
		a, b, c, d := load(src, 4*i), load(src, 4*i+8), load(src, 4*i+16), load(src, 4*i+24)
		a = a<<(rotate&1)&^low | a>>31&low
		b = b<<(rotate&1)&^low | b>>31&low
		c = c<<(rotate&1)&^low | c>>31&low
		d = d<<(rotate&1)&^low | d>>31&low
		e, o := halves4(a, b)
		f, q := halves4(c, d)
		store(p0, i, e&lowWord|f<<32)
		store(p1, i, o&lowWord|q<<32)
		store(p2, i, e>>32|f&^lowWord)
		store(p3, i, o>>32|q&^lowWord)
	}
	splitEach(&planes{p0, p1, p2, p3}, src, i, Layout{Width: 4, Float: rotate == 1})
}

// unhalves4 is the inverse of halves4.
func unhalves4(even, odd uint64) (a, b uint64) {
	s, t := unpairs(even), unpairs(odd)
	u := s&evenBytes | t&evenBytes<<8
	v := s>>8&evenBytes | t&^evenBytes
	return u&lowWord | v<<32, u>>32 | v&^lowWord
}

func join4(dst, p0, p1, p2, p3 []byte, rotate uint) {
	n := len(dst) / 4
	high := uint64(lowBits4) * uint64(rotate) << 31
	i := 0
	for ; i+8 <= n; i += 8 {
		w, x, y, z := load(p0, i), load(p1, i), load(p2, i), load(p3, i)
		a, b := unhalves4(w&lowWord|y<<32, x&lowWord|z<<32)
		c, d := unhalves4(w>>32|y&^lowWord, x>>32|z&^lowWord)
		store(dst, 4*i, a>>(rotate&1)&^high|a<<31&high)
		store(dst, 4*i+8, b>>(rotate&1)&^high|b<<31&high)
		store(dst, 4*i+16, c>>(rotate&1)&^high|c<<31&high)
		store(dst, 4*i+24, d>>(rotate&1)&^high|d<<31&high)
	}
	joinEach(dst, &planes{p0, p1, p2, p3}, i, Layout{Width: 4, Float: rotate == 1})
}

// split8 splits elements of 8 bytes, 8 at a time: it transposes a square of bytes.
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

// transpose swaps byte j of x[i] with byte i of x[j], for all i and j: first it swaps quarters of the square, then quarters of
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
