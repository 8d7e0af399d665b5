//go:build !noasm

package chunk

import "golang.org/x/sys/cpu"

func choose() kernels {
	if cpu.X86.HasAVX2 {
		return avx2
	}
	return portable
}

// atOnce is how many elements the assembly handles at once: it gets a positive multiple of it. The loops in Go handle
// the rest.
const atOnce = 32

var avx2 = kernels{
	split2: func(p0, p1, src []byte, rotate uint) {
		n := len(src) / 2 &^ (atOnce - 1)
		if n > 0 {
			split2AVX2(p0, p1, src[:2*n], rotate)
		}
		split2(p0[n:], p1[n:], src[2*n:], rotate)
	},
	split4: func(p0, p1, p2, p3, src []byte, rotate uint) {
		n := len(src) / 4 &^ (atOnce - 1)
		if n > 0 {
			split4AVX2(p0, p1, p2, p3, src[:4*n], rotate)
		}
		split4(p0[n:], p1[n:], p2[n:], p3[n:], src[4*n:], rotate)
	},
	join2: func(dst, p0, p1 []byte, rotate uint) {
		n := len(dst) / 2 &^ (atOnce - 1)
		if n > 0 {
			join2AVX2(dst[:2*n], p0, p1, rotate)
		}
		join2(dst[2*n:], p0[n:], p1[n:], rotate)
	},
	join4: func(dst, p0, p1, p2, p3 []byte, rotate uint) {
		n := len(dst) / 4 &^ (atOnce - 1)
		if n > 0 {
			join4AVX2(dst[:4*n], p0, p1, p2, p3, rotate)
		}
		join4(dst[4*n:], p0[n:], p1[n:], p2[n:], p3[n:], rotate)
	},
}

//go:noescape
func split2AVX2(p0, p1, src []byte, rotate uint)

//go:noescape
func split4AVX2(p0, p1, p2, p3, src []byte, rotate uint)

//go:noescape
func join2AVX2(dst, p0, p1 []byte, rotate uint)

//go:noescape
func join4AVX2(dst, p0, p1, p2, p3 []byte, rotate uint)
