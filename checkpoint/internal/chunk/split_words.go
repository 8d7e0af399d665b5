package chunk

import "encoding/binary"

// The loops of this file take 8 elements at a time as 64-bit words, which hold 4 elements of 2 bytes or 2 of 4: they
// need nothing of the CPU but its registers, and run everywhere.

const (
	evenBytes  = 0x00ff00ff00ff00ff
	evenHalves = 0x0000ffff0000ffff
	lowWord    = 0x00000000ffffffff
	lowBits2   = 0x0001000100010001 // the lowest bit of each element
	lowBits4   = 0x0000000100000001
)

func load(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i : i+8 : i+8]) }

func store(b []byte, i int, x uint64) { binary.LittleEndian.PutUint64(b[i:i+8:i+8], x) }

// evens moves the even bytes of x together, into the lower 4.
func evens(x uint64) uint64 {
	x &= evenBytes
	x = (x | x>>8) & evenHalves
	return (x | x>>16) & lowWord
}

// spread is the inverse of evens: it makes the lower 4 bytes the even ones.
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

// halves4 takes elements 0, 1 and 2, 3 and returns the bytes of the even planes, 4 of plane 0 below 4 of plane 2,
// and those of the odd ones.
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
