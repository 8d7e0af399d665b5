package blas

import (
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/blas"

	"ddpbatch/internal/half"
)

func yes() bool { return true }
func no() bool  { return false }

// TestNarrowMultipliesRoundedValues compares with products of values that were rounded before. The bits are equal, since the same library
// adds in the same order. (The rounded a and b have no gaps, since Narrow packs them.)
func TestNarrowMultipliesRoundedValues(t *testing.T) {
	for _, c := range []struct {
		precision Precision
		round     func(dst, x []float32)
	}{{BFloat16, half.RoundBFloat16s}, {Float16, half.RoundFloat16s}} {
		for name, lib := range libraries(t) {
			narrow, how := narrowOn(lib, c.precision, no)
			if !strings.Contains(how, string(c.precision)) {
				t.Errorf("%s: how is %q", name, how)
			}
			for _, tA := range transposes {
				for _, tB := range transposes {
					got := newProduct(tA, tB, 13, 29, 31, 4, 0.5, 2)
					rounded := newProduct(tA, tB, 13, 29, 31, 0, 0.5, 2)
					copyRows(rounded.a, rounded.lda, got.a, got.lda)
					copyRows(rounded.b, rounded.ldb, got.b, got.ldb)
					rounded.c, rounded.ldc = slices.Clone(got.c), got.ldc
					c.round(rounded.a, rounded.a)
					c.round(rounded.b, rounded.b)
					before := slices.Clone(got.a)
					got.run(narrow)
					rounded.run(lib)
					if !slices.EqualFunc(got.c, rounded.c, sameBits) {
						t.Errorf("%s, %s: not the product of rounded values", name, c.precision)
					}
					if !slices.Equal(got.a, before) {
						t.Errorf("%s, %s: a was changed", name, c.precision)
					}
				}
			}
		}
	}
}

func TestFloat32IsTheLibrary(t *testing.T) {
	lib := newRounded(new(Go), half.RoundFloat16s, new(Go).Sgemm) // any library that can be recognized
	if got, how := Narrow(lib, Float32); got != Library(lib) || how != "float32" {
		t.Errorf("got %T, %s", got, how)
	}
}

func copyRows(dst []float32, ldd int, src []float32, lds int) {
	for i := range len(dst) / ldd {
		copy(dst[i*ldd:][:ldd], src[i*lds:])
	}
}

func TestNarrowRoundsToItsPrecision(t *testing.T) {
	c := []float32{0}
	for _, test := range []struct {
		precision Precision
		x, want   float32
	}{
		{Float16, 65504, 65504}, {Float16, 65520, float32(math.Inf(1))}, {Float16, -1e9, float32(math.Inf(-1))},
		{Float16, 2049, 2048}, {Float16, 2051, 2052}, {Float16, 0x1p-26, 0},
		{BFloat16, 257, 256}, {BFloat16, 259, 260}, {BFloat16, 0x1p-126, 0x1p-126}, {Float32, 257, 257},
	} {
		narrow, _ := narrowOn(new(Go), test.precision, no)
		narrow.Sgemm(blas.NoTrans, blas.NoTrans, 1, 1, 1, 1, []float32{test.x}, 1, []float32{1}, 1, 0, c, 1)
		if c[0] != test.want {
			t.Errorf("%v in %s: got %v, want %v", test.x, test.precision, c[0], test.want)
		}
	}
}

func TestNarrowTakesEmptyMatrices(t *testing.T) {
	narrow, _ := Narrow(new(Go), BFloat16)
	for _, size := range [][3]int{{0, 3, 2}, {3, 0, 2}, {3, 4, 0}} {
		newProduct(blas.NoTrans, blas.Trans, size[0], size[1], size[2], 1, 1, 0).check(t, narrow)
	}
}

// TestNarrowUsesTheLibrarysOwnProduct makes one of sbgemm_ and sgemm_ wrong to see which one is used, since both give the same result.
func TestNarrowUsesTheLibrarysOwnProduct(t *testing.T) {
	for _, test := range []struct {
		name    string
		defines []string
		machine func() bool
		how     string
	}{
		{"right", []string{"-DNARROW=1"}, yes, "bfloat16 by sbgemm_"},
		{"wrong", []string{"-DNARROW=2"}, yes, "float32 on values rounded to bfloat16, as the library's sbgemm_ gives wrong results"},
		{"none", nil, yes, "float32 on values rounded to bfloat16, as the library has no sbgemm_"},
		{"no instructions", []string{"-DNARROW=2"}, no,
			"float32 on values rounded to bfloat16, as the machine has no instructions for bfloat16"},
	} {
		t.Run(test.name, func(t *testing.T) {
			lib, _, err := Open(Config{Library: fake(t, "narrow.so", test.defines...)})
			if err != nil {
				t.Fatal(err)
			}
			narrow, how := narrowOn(lib, BFloat16, test.machine)
			if how != test.how {
				t.Errorf("how is %q, want %q", how, test.how)
			}
			if err := verify(narrow); err != nil {
				t.Error(err)
			}
			p := newProduct(blas.Trans, blas.Trans, 9, 20, 11, 3, 1, 0)
			p.run(narrow)
			got := slices.Clone(p.c)
			rounded, _ := narrowOn(new(Go), BFloat16, no)
			p.run(rounded)
			for i, x := range got { // both are exact except for some roundings of sums below 11
				if i%p.ldc < p.n && !(math.Abs(float64(x-p.c[i])) <= 1e-5) {
					t.Fatalf("element %d is %v, want %v", i, x, p.c[i])
				}
			}
			p.run(narrow) // warms up
			if got := testing.AllocsPerRun(100, func() { p.run(narrow) }); got != 0 {
				t.Errorf("%v allocations a call", got)
			}
		})
	}
}

func TestCPUsWithBFloat16AreKnown(t *testing.T) {
	for text, want := range map[string]bool{
		"": false,
		"processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 fsrm\n": true,
		"flags\t\t: fpu avx512f\nbugs\t: avx512_bf16\n":             false,
		"BogoMIPS\t: 50\nFeatures\t: fp asimd i8mm bf16 dgh\n":      true,
		"Features\t: fp asimd svebf16x\n":                           false,
		"no colon":                                                  false,
	} {
		if got := namesBFloat16(text); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}

func TestUnknownPrecisionPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Narrow(new(Go), "float8")
}
