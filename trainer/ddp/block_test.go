package ddp

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A record is at most half a scale from what was written, and its largest magnitude 127 scales.
func TestQuantizeIsNear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.Float32Range(-1, 1), 0, blockSize).Draw(t, "x")
		exponent := rapid.IntRange(-120, 100).Draw(t, "exponent")
		top := 0.0
		for i := range x {
			x[i] = float32(math.Ldexp(float64(x[i]), exponent))
			top = max(top, math.Abs(float64(x[i])))
		}
		// Records are written over old ones.
		record := slices.Repeat([]byte{0xaa}, scaleSize+len(x))
		quantize(record, x)
		got := make([]float32, len(x))
		addDequantized(got, record, 1)
		scale := top / 127
		if top < 0x1p-121 {
			scale = 2 * 0x1p-121 // all zeros
		}
		for i, v := range x {
			// Scale, its inverse and the product are rounded once each: 127 times 3 x 2^-24 more than half a scale.
			if e := math.Abs(float64(got[i]) - float64(v)); e > 0.50003*scale {
				t.Fatalf("element %d is %v, was %v: the error is %v scales", i, got[i], v, e/scale)
			}
		}
	})
}

func TestQuantizeEdges(t *testing.T) {
	inf, tiny := float32(math.Inf(1)), math.Float32frombits(1)
	for name, test := range map[string]struct{ x, want []float32 }{
		"empty":           {nil, nil},
		"zeros":           {[]float32{0, float32(math.Copysign(0, -1))}, []float32{0, 0}},
		"exact":           {[]float32{127, -127, 1, -1, 64, 0}, []float32{127, -127, 1, -1, 64, 0}},
		"ties to even":    {[]float32{127, 0.5, 1.5, -0.5, -1.5, 2.5}, []float32{127, 0, 2, 0, -2, 2}},
		"largest":         {[]float32{0x1.fffffep126, -0x1.fffffep126}, []float32{0x1.fffffep126, -0x1.fffffep126}},
		"smallest":        {[]float32{tiny, -tiny}, []float32{0, 0}},
		"first not zeros": {[]float32{0x1p-120}, []float32{0x1p-120}},
	} {
		record, got := make([]byte, scaleSize+len(test.x)), make([]float32, len(test.x))
		quantize(record, test.x)
		addDequantized(got, record, 1)
		for i, want := range test.want {
			// 127 scales need not be exactly the largest magnitude: the scale is rounded once, and the product.
			if math.Abs(float64(got[i])-float64(want)) > math.Abs(float64(want))*0x1p-20 {
				t.Errorf("%s: element %d is %v, want %v", name, i, got[i], want)
			}
		}
	}
	for _, bad := range []float32{inf, -inf, 0x1p127, float32(math.NaN())} {
		record, got := make([]byte, scaleSize+2), make([]float32, 2)
		quantize(record, []float32{1, bad})
		addDequantized(got, record, 1)
		if got[0] == got[0] || got[1] == got[1] {
			t.Errorf("a block with %v is %v, want NaN", bad, got)
		}
	}
}

func BenchmarkQuantize(b *testing.B) {
	x, record := make([]float32, blockSize), make([]byte, scaleSize+blockSize)
	for i := range x {
		x[i] = float32(i%17) - 8
	}
	b.SetBytes(4 * blockSize)
	for b.Loop() {
		quantize(record, x)
	}
}

func BenchmarkDequantize(b *testing.B) {
	x, record := make([]float32, blockSize), make([]byte, scaleSize+blockSize)
	b.SetBytes(4 * blockSize)
	for b.Loop() {
		addDequantized(x, record, 1)
	}
}
