package chunk

import "math/bits"

// kernels move elements to planes and back, for elements of 2 and 4 bytes: what an encoder and a decoder wait for
// where nothing is left to gain by entropy coding. rotate is 1 or 0: the bits by which split turns elements to the
// left, and join turns them back.
type kernels struct {
	split2 func(p0, p1, src []byte, rotate uint)
	split4 func(p0, p1, p2, p3, src []byte, rotate uint)
	join2  func(dst, p0, p1 []byte, rotate uint)
	join4  func(dst, p0, p1, p2, p3 []byte, rotate uint)
}

// plain is what runs where there is no assembly, and what assembly is tested against.
var plain = kernels{split2: split2, split4: split4, join2: join2, join4: join4}

// best is what this CPU runs.
var best = choose()

// rotation is by how many bits elements of the layout are rotated.
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

// splitEach splits the elements from the one with number i on, one after the other: what the faster loops leave
// over, and their definition.
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
