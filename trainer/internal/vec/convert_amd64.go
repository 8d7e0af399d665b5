//go:build !noasm

package vec

// Assembly converts whole eights, the loops in Go what is left: they give the same bits.

func roundBFloat16Eights(dst, x []float32) {
	n := len(dst) &^ 7
	if n > 0 {
		roundBFloat16AVX2(dst[:n], x)
	}
	roundBFloat16(dst[n:], x[n:])
}

func toBFloat16Eights(dst []uint16, x []float32) {
	n := len(dst) &^ 7
	if n > 0 {
		toBFloat16AVX2(dst[:n], x)
	}
	toBFloat16(dst[n:], x[n:])
}

func fromBFloat16Eights(dst []float32, x []uint16) {
	n := len(dst) &^ 7
	if n > 0 {
		fromBFloat16AVX2(dst[:n], x)
	}
	fromBFloat16(dst[n:], x[n:])
}

func roundFloat16Eights(dst, x []float32) {
	n := len(dst) &^ 7
	if n > 0 {
		roundFloat16AVX2(dst[:n], x)
	}
	roundFloat16(dst[n:], x[n:])
}

func toFloat16Eights(dst []uint16, x []float32) {
	n := len(dst) &^ 7
	if n > 0 {
		toFloat16AVX2(dst[:n], x)
	}
	toFloat16(dst[n:], x[n:])
}

func fromFloat16Eights(dst []float32, x []uint16) {
	n := len(dst) &^ 7
	if n > 0 {
		fromFloat16AVX2(dst[:n], x)
	}
	fromFloat16(dst[n:], x[n:])
}

//go:noescape
func roundBFloat16AVX2(dst, x []float32)

//go:noescape
func toBFloat16AVX2(dst []uint16, x []float32)

//go:noescape
func fromBFloat16AVX2(dst []float32, x []uint16)

//go:noescape
func roundFloat16AVX2(dst, x []float32)

//go:noescape
func toFloat16AVX2(dst []uint16, x []float32)

//go:noescape
func fromFloat16AVX2(dst []float32, x []uint16)
