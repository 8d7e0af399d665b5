package vec

import (
	"math"
	"testing"
)

// TestFromHalves compares every 16-bit float with the definition: sign, exponent, fraction.
func TestFromHalves(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	for _, s := range implementations() {
		half, brain := make([]float32, len(all)), make([]float32, len(all))
		s.fromFloat16(half, all)
		s.fromBFloat16(brain, all)
		for i := range all {
			if want := define(uint16(i), 5, 10); !same(half[i], want) {
				t.Fatalf("%s: float16 %#x is %v, want %v", s.name, i, half[i], want)
			}
			if want := define(uint16(i), 8, 7); !same(brain[i], want) {
				t.Fatalf("%s: bfloat16 %#x is %v, want %v", s.name, i, brain[i], want)
			}
		}
	}
}

// define is the number that h is, as IEEE 754 has it.
func define(h uint16, exponentBits, fractionBits int) float32 {
	fraction := float64(h & (1<<fractionBits - 1))
	exponent := int(h>>fractionBits) & (1<<exponentBits - 1)
	bias := 1<<(exponentBits-1) - 1
	var v float64
	switch {
	case exponent == 1<<exponentBits-1 && fraction != 0:
		v = math.NaN()
	case exponent == 1<<exponentBits-1:
		v = math.Inf(1)
	case exponent == 0:
		v = math.Ldexp(fraction, 1-bias-fractionBits)
	default:
		v = math.Ldexp(fraction+float64(int(1)<<fractionBits), exponent-bias-fractionBits)
	}
	if h>>15 != 0 {
		v = -v
	}
	return float32(v)
}

// TestToHalves takes every finite 16-bit float, and the points below, at and above the middle between it and the next,
// of either sign: they must become the nearer one, and at the middle the even one.
func TestToHalves(t *testing.T) {
	for _, f := range []struct {
		name                       string
		exponentBits, fractionBits int
		to                         func(s *kernelSet, dst []uint16, x []float32)
		round                      func(s *kernelSet, dst, x []float32)
	}{
		{"float16", 5, 10, func(s *kernelSet, dst []uint16, x []float32) { s.toFloat16(dst, x) },
			func(s *kernelSet, dst, x []float32) { s.roundFloat16(dst, x) }},
		{"bfloat16", 8, 7, func(s *kernelSet, dst []uint16, x []float32) { s.toBFloat16(dst, x) },
			func(s *kernelSet, dst, x []float32) { s.roundBFloat16(dst, x) }},
	} {
		infinity := uint16(1<<f.exponentBits-1) << f.fractionBits
		var x []float32
		var want []uint16
		for h := range infinity {
			low := float64(define(h, f.exponentBits, f.fractionBits))
			high := float64(define(h+1, f.exponentBits, f.fractionBits))
			if h+1 == infinity { // where the next number would be
				high = 2*low - float64(define(h-1, f.exponentBits, f.fractionBits))
			}
			middle := float32((low + high) / 2) // exact
			if math.IsInf(float64(middle), 0) {
				t.Fatal("the middle is no float32")
			}
			even := h + h&1
			for _, sign := range []uint16{0, 0x8000} {
				v := float32(math.Copysign(1, 1-2*float64(sign>>15)))
				x = append(x, v*float32(low), v*math.Nextafter32(middle, 0), v*middle,
					v*math.Nextafter32(middle, math.MaxFloat32))
				want = append(want, sign|h, sign|h, sign|even, sign|(h+1))
			}
		}
		for _, s := range implementations() {
			got, rounded := make([]uint16, len(x)), make([]float32, len(x))
			f.to(s, got, x)
			f.round(s, rounded, x)
			for i := range got {
				if got[i] != want[i] || !same(rounded[i], define(want[i], f.exponentBits, f.fractionBits)) {
					t.Fatalf("%s %s: %v is made %#x and %v, want %#x", s.name, f.name, x[i], got[i], rounded[i], want[i])
				}
			}
		}
	}
}

// TestConversions compares the sets bit for bit, NaN's too, at lengths around the width of vectors.
func TestConversions(t *testing.T) {
	for _, s := range assembly() {
		rng := newRand(t)
		for n := range 71 {
			x := anything(rng, n)
			for i := range n / 4 {
				x[i] = math.Float32frombits(0x7f800000 | rng.Uint32())
			}
			bits := make([]uint16, n)
			for i := range bits {
				bits[i] = uint16(rng.Uint32())
			}
			for _, to := range [][2]func(dst []uint16, x []float32){
				{s.toFloat16, plain.toFloat16}, {s.toBFloat16, plain.toBFloat16},
			} {
				got, changed := guarded[uint16](rng, n, 7)
				want := make([]uint16, n)
				to[0](got, x)
				to[1](want, x)
				for i := range got {
					if got[i] != want[i] || changed() {
						t.Fatalf("%s: %v (%#x) is made %#x, want %#x", s.name, x[i], math.Float32bits(x[i]), got[i], want[i])
					}
				}
			}
			for _, from := range [][2]func(dst []float32, x []uint16){
				{s.fromFloat16, plain.fromFloat16}, {s.fromBFloat16, plain.fromBFloat16},
			} {
				got, changed := guarded[float32](rng, n, 7)
				want := make([]float32, n)
				from[0](got, bits)
				from[1](want, bits)
				for i := range got {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) || changed() {
						t.Fatalf("%s: %#x is made %v, want %v", s.name, bits[i], got[i], want[i])
					}
				}
			}
		}
	}
}
