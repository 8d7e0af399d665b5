package half

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// format is one of the two types.
type format struct {
	name                       string
	exponentBits, fractionBits int
	to                         func(dst []uint16, x []float32)
	from                       func(dst []float32, x []uint16)
	round                      func(dst, x []float32)
}

// formats are both types, once as the exported functions convert them, and once as the loops do that are used on machines without assembly.
var formats = []format{
	{"float16", 5, 10, ToFloat16s, FromFloat16s, RoundFloat16s},
	{"bfloat16", 8, 7, ToBFloat16s, FromBFloat16s, RoundBFloat16s},
	{"float16 in Go", 5, 10, toFloat16s, fromFloat16s, roundFloat16s},
	{"bfloat16 in Go", 8, 7, toBFloat16s, fromBFloat16s, roundBFloat16s},
}

// number returns the value of the bits h according to IEEE 754.
func (f format) number(h uint16) float32 {
	fraction := float64(h & (1<<f.fractionBits - 1))
	exponent := int(h>>f.fractionBits) & (1<<f.exponentBits - 1)
	bias := 1<<(f.exponentBits-1) - 1
	var v float64
	switch {
	case exponent == 1<<f.exponentBits-1 && fraction != 0:
		v = math.NaN()
	case exponent == 1<<f.exponentBits-1:
		v = math.Inf(1)
	case exponent == 0:
		v = math.Ldexp(fraction, 1-bias-f.fractionBits)
	default:
		v = math.Ldexp(fraction+float64(int(1)<<f.fractionBits), exponent-bias-f.fractionBits)
	}
	if h>>15 != 0 {
		v = -v
	}
	return float32(v)
}

// same reports whether two floats are equal, where NaN equals NaN and the signs of zeros differ.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// TestFromBitsIsTheDefinition compares every 16-bit float with the definition.
func TestFromBitsIsTheDefinition(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	for _, f := range formats {
		got := make([]float32, len(all))
		f.from(got, all)
		for i, h := range all {
			if want := f.number(h); !same(got[i], want) {
				t.Fatalf("%s %#x is %v, want %v", f.name, h, got[i], want)
			}
		}
	}
}

// TestToBitsRoundsToTheNearest takes every finite 16-bit float, and the points below, at and above the middle between it and the next, of
// either sign. Each point must become the nearer float, and the middle the even one.
func TestToBitsRoundsToTheNearest(t *testing.T) {
	for _, f := range formats {
		infinity := uint16(1<<f.exponentBits-1) << f.fractionBits
		var x []float32
		var want []uint16
		for h := range infinity {
			low, high := float64(f.number(h)), float64(f.number(h+1))
			if h+1 == infinity { // where the next number would be
				high = 2*low - float64(f.number(h-1))
			}
			middle := float32((low + high) / 2) // exact
			if math.IsInf(float64(middle), 0) {
				t.Fatal("the middle is not a float32")
			}
			even := h + h&1
			for _, sign := range []uint16{0, 0x8000} {
				v := float32(math.Copysign(1, 1-2*float64(sign>>15)))
				x = append(x, v*float32(low), v*math.Nextafter32(middle, 0), v*middle,
					v*math.Nextafter32(middle, math.MaxFloat32))
				want = append(want, sign|h, sign|h, sign|even, sign|(h+1))
			}
		}
		got, rounded := make([]uint16, len(x)), make([]float32, len(x))
		f.to(got, x)
		f.round(rounded, x)
		for i := range got {
			if got[i] != want[i] || !same(rounded[i], f.number(want[i])) {
				t.Fatalf("%s: %v is made %#x and %v, want %#x", f.name, x[i], got[i], rounded[i], want[i])
			}
		}
	}
}

// TestSlicesAreTheirElements compares slices with single numbers bit for bit, including the bits of NaN, at lengths around the width of
// vectors and around the pieces that assembly works on. Nothing is written outside the slices.
func TestSlicesAreTheirElements(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	lengths := []int{piece - 1, piece, piece + 9}
	for n := range 71 {
		lengths = append(lengths, n)
	}
	for _, n := range lengths {
		x, bits := make([]float32, n), make([]uint16, n)
		for i := range n {
			x[i], bits[i] = math.Float32frombits(rng.Uint32()), uint16(rng.Uint32())
			if i%4 == 0 {
				x[i] = math.Float32frombits(0x7f800000 | rng.Uint32()) // infinity or NaN
			}
		}
		compareAll(t, ToFloat16s, ToFloat16, x)
		compareAll(t, ToBFloat16s, ToBFloat16, x)
		compareAll(t, FromFloat16s, FromFloat16, bits)
		compareAll(t, FromBFloat16s, FromBFloat16, bits)
		compareAll(t, RoundFloat16s, func(f float32) float32 { return FromFloat16(ToFloat16(f)) }, x)
		compareAll(t, RoundBFloat16s, func(f float32) float32 { return FromBFloat16(ToBFloat16(f)) }, x)
	}
}

func compareAll[D, X uint16 | float32](t *testing.T, slice func([]D, []X), one func(X) D, x []X) {
	t.Helper()
	const guard = 7
	all := slices.Repeat([]D{guard}, len(x)+16)
	got := all[8:][:len(x)]
	slice(got, x)
	for i, v := range x {
		if want := one(v); bitsOf(got[i]) != bitsOf(want) {
			t.Fatalf("of %d: %v is made %v (%#x), want %v (%#x)", len(x), v, got[i], bitsOf(got[i]), want, bitsOf(want))
		}
	}
	clear(got)
	if slices.ContainsFunc(slices.Concat(all[:8], all[8+len(x):]), func(v D) bool { return v != guard }) {
		t.Fatalf("of %d: what is beside the slice was written", len(x))
	}
}

func bitsOf[T uint16 | float32](v T) uint32 {
	if f, ok := any(v).(float32); ok {
		return math.Float32bits(f)
	}
	return uint32(v)
}

func TestWrongLengthsPanic(t *testing.T) {
	defer func() {
		if fmt.Sprint(recover()) != "half: slice lengths do not match" {
			t.Error("no panic, or another")
		}
	}()
	ToFloat16s(make([]uint16, 3), make([]float32, 4))
}

func TestRoundingInPlaceAllocatesNothing(t *testing.T) {
	x := []float32{1.0001, 2, -3, 1e9, 5, 6, 7, 8, 9}
	if n := testing.AllocsPerRun(10, func() { RoundFloat16s(x, x) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if want := []float32{1, 2, -3, float32(math.Inf(1)), 5, 6, 7, 8, 9}; !slices.Equal(x, want) {
		t.Errorf("%v, want %v", x, want)
	}
}

// BenchmarkSlices converts in the first-level cache, in the second, and in memory.
func BenchmarkSlices(b *testing.B) {
	for _, n := range []int{2 << 10, 32 << 10, 4 << 20} {
		rng := rand.New(rand.NewPCG(1, 2))
		x, bits := make([]float32, n), make([]uint16, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		for _, f := range formats {
			run := func(name string, bytes int, convert func()) {
				b.Run(fmt.Sprintf("%s/%s/%d", name, f.name, n), func(b *testing.B) {
					b.SetBytes(int64(bytes * n))
					for b.Loop() {
						convert()
					}
				})
			}
			run("to", 6, func() { f.to(bits, x) })
			run("from", 6, func() { f.from(x, bits) })
			run("round", 8, func() { f.round(x, x) })
		}
	}
}
