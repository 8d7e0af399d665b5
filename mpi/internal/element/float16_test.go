package element

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// format is a 16-bit float, described only by its field widths (IEEE 754-2019, 3.4).
type format struct {
	fraction, bias int
	widen          func(uint16) float32
	narrow         func(float32) uint16
}

var formats = map[Type]format{
	Float16: {10, 15, func(h uint16) float32 { return F16(h).Float32() },
		func(f float32) uint16 { return uint16(ToFloat16(f)) }},
	BFloat16: {7, 127, func(h uint16) float32 { return BF16(h).Float32() },
		func(f float32) uint16 { return uint16(ToBFloat16(f)) }},
}

// value returns the value of h according to the standard.
func (f format) value(h uint16) float64 {
	exponent, fraction := int(h&0x7fff)>>f.fraction, int(h)&(1<<f.fraction-1)
	sign := 1.0
	if h>>15 == 1 {
		sign = -1
	}
	switch {
	case exponent == 0x7fff>>f.fraction && fraction != 0:
		return math.NaN()
	case exponent == 0x7fff>>f.fraction:
		return math.Inf(int(sign))
	case exponent == 0:
		return math.Copysign(math.Ldexp(float64(fraction), 1-f.bias-f.fraction), sign)
	}
	return sign * math.Ldexp(float64(fraction+1<<f.fraction), exponent-f.bias-f.fraction)
}

// infinity returns the code after the largest finite one.
func (f format) infinity() uint16 { return 0x7fff >> f.fraction << f.fraction }

func TestHalvesWidenExactly(t *testing.T) {
	for typ, f := range formats {
		for h := range uint32(1 << 16) {
			got, want := float64(f.widen(uint16(h))), f.value(uint16(h))
			if math.Float64bits(got) != math.Float64bits(want) && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Fatalf("%v %#04x is %v, want %v", typ, h, got, want)
			}
			back := f.narrow(f.widen(uint16(h)))
			if back != uint16(h) && !(math.IsNaN(want) && math.IsNaN(f.value(back)) && back>>15 == uint16(h)>>15) {
				t.Fatalf("%v %#04x comes back as %#04x", typ, h, back)
			}
		}
	}
}

// Numbers halfway between two neighbors, and the float32 before and after each of them, are rounded to the nearest.
func TestHalvesRoundToTheNearest(t *testing.T) {
	for typ, f := range formats {
		for low := range f.infinity() {
			high := low + 1
			above := f.value(high)
			if high == f.infinity() { // as if there were larger exponents
				above = 2*f.value(low) - f.value(low-1)
			}
			middle := (f.value(low) + above) / 2
			if float64(float32(middle)) != middle {
				t.Fatalf("%v: %v is not a float32", typ, middle)
			}
			even := low + low&1
			for _, c := range []struct {
				f    float32
				want uint16
			}{
				{float32(middle), even},
				{math.Nextafter32(float32(middle), 0), low},
				{math.Nextafter32(float32(middle), float32(math.Inf(1))), high},
			} {
				if got := f.narrow(c.f); got != c.want {
					t.Fatalf("%v: %v becomes %#04x, want %#04x", typ, c.f, got, c.want)
				}
				if got := f.narrow(-c.f); got != c.want|0x8000 {
					t.Fatalf("%v: %v becomes %#04x, want %#04x", typ, -c.f, got, c.want|0x8000)
				}
			}
		}
	}
}

func TestHalvesKeepNaNs(t *testing.T) {
	for typ, f := range formats {
		for _, bits := range []uint32{0x7f800001, 0x7fbfffff, 0x7fc00000, 0x7fffffff} {
			for _, sign := range []uint32{0, 1 << 31} {
				got := f.narrow(math.Float32frombits(bits | sign))
				if !math.IsNaN(f.value(got)) || uint32(got)>>15 != sign>>31 {
					t.Errorf("%v: the NaN %#08x becomes %#04x", typ, bits|sign, got)
				}
			}
		}
		for _, bits := range []float32{math.MaxFloat32, float32(math.Inf(1))} {
			if got := f.narrow(bits); got != f.infinity() {
				t.Errorf("%v: %v becomes %#04x", typ, bits, got)
			}
		}
	}
}

// TestHalfArithmeticIsExactlyRounded compares sums, products and quotients with exact ones, rounded by a search among all numbers of the
// type. float64 is exact for products. For the others it is wide enough that rounding twice does no harm.
func TestHalfArithmeticIsExactlyRounded(t *testing.T) {
	const pairs = 50_000
	for typ, f := range formats {
		rng := newRand(t)
		a, b := sample(rng, typ, pairs), sample(rng, typ, pairs)
		for op, exact := range map[Op]func(x, y float64) float64{
			Sum:     func(x, y float64) float64 { return x + y },
			Product: func(x, y float64) float64 { return x * y },
		} {
			dst := make([]byte, len(a))
			kernels[typ][op](dst, a, b)
			for i, got := range View[uint16](dst) {
				x, y := f.value(View[uint16](a)[i]), f.value(View[uint16](b)[i])
				if err := f.check(got, exact(x, y)); err != nil && !(op == Product && math.Abs(x*y) < 0x1p-126) {
					t.Fatalf("%v %v of %v and %v: %v", typ, op, x, y, err)
				}
			}
		}
		dst := slices.Clone(a)
		if err := Divide(typ, dst, 3); err != nil {
			t.Fatal(err)
		}
		for i, got := range View[uint16](dst) {
			x := f.value(View[uint16](a)[i])
			if err := f.check(got, x/3); err != nil && !(math.Abs(x/3) < 0x1p-126) {
				t.Fatalf("%v: %v / 3: %v", typ, x, err)
			}
		}
	}
}

// check returns an error unless got is nearest to exact.
func (f format) check(got uint16, exact float64) error {
	if math.IsNaN(exact) {
		if !math.IsNaN(f.value(got)) {
			return fmt.Errorf("%#04x, want NaN", got)
		}
		return nil
	}
	// The codes of positive numbers are in the order of their values.
	low := uint16(0)
	for step := uint16(1) << 14; step > 0; step >>= 1 {
		if next := low + step; next < f.infinity() && f.value(next) <= math.Abs(exact) {
			low = next
		}
	}
	above := f.value(low + 1)
	if low+1 == f.infinity() {
		above = 2*f.value(low) - f.value(low-1)
	}
	want := low
	middle := (f.value(low) + above) / 2
	if m := math.Abs(exact); m > middle || m == middle && low&1 == 1 {
		want++
	}
	if math.Signbit(exact) {
		want |= 0x8000
	}
	if got != want {
		return fmt.Errorf("%#04x, want %#04x", got, want)
	}
	return nil
}
