package element

import (
	"bytes"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// raw returns the memory of s.
func raw[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}

// TestDivideIntegersIsExact compares division with arbitrary precision, including divisors that do not fit in the type.
func TestDivideIntegersIsExact(t *testing.T) {
	rng := newRand(t)
	const n = 300
	for typ := range integerTypes {
		for _, by := range []int{1, 2, 3, 127, 300, 70_000, math.MaxInt32, math.MaxInt} {
			was := sample(rng, typ, n)
			dst := slices.Clone(was)
			if err := Divide(typ, dst, by); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				want := new(big.Int).Quo(integerAt(typ, was, i), big.NewInt(int64(by)))
				if got := integerAt(typ, dst, i); got.Cmp(want) != 0 {
					t.Fatalf("%v: %v / %d is %v", typ, integerAt(typ, was, i), by, got)
				}
			}
		}
	}
}

// TestDivideFloatsIsExactlyRounded divides arrays of every length around the block. float64 quotients of float32 can be rounded again
// without harm.
func TestDivideFloatsIsExactlyRounded(t *testing.T) {
	rng := newRand(t)
	for n := range 101 {
		for _, by := range []int{1, 3, 8, 1 << 20} {
			single, double := sample(rng, Float32, n), sample(rng, Float64, n)
			complexes := sample(rng, Complex64, n)
			want32, want64, wantC := make([]float32, n), make([]float64, n), make([]float32, 2*n)
			for i := range n {
				want32[i] = float32(float64(View[float32](single)[i]) / float64(by))
				want64[i] = View[float64](double)[i] / float64(by)
			}
			for i := range wantC {
				wantC[i] = float32(float64(View[float32](complexes)[i]) / float64(by))
			}
			for _, c := range []struct {
				t         Type
				dst, want []byte
			}{{Float32, single, rawOrNil(want32)}, {Float64, double, rawOrNil(want64)}, {Complex64, complexes, rawOrNil(wantC)}} {
				if err := Divide(c.t, c.dst, by); err != nil {
					t.Fatal(err)
				}
				if !same(t, c.t, c.dst, c.want) {
					t.Fatalf("%d elements of %v by %d", n, c.t, by)
				}
			}
		}
	}
}

func rawOrNil[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return raw(s)
}

// TestScaleIsDivision checks that scaling by 1/2^k gives the same as dividing by 2^k.
func TestScaleIsDivision(t *testing.T) {
	rng := newRand(t)
	for _, typ := range []Type{Float32, Float64, Float16, BFloat16, Complex64, Complex128} {
		was := sample(rng, typ, 1000)
		for _, by := range []int{1, 2, 64, 1024} {
			scaled, divided := slices.Clone(was), slices.Clone(was)
			if err := Scale(typ, scaled, 1/float64(by)); err != nil {
				t.Fatal(err)
			}
			if err := Divide(typ, divided, by); err != nil {
				t.Fatal(err)
			}
			same(t, typ, scaled, divided)
		}
	}
}

func TestScaleIntegersIsExactOrRefused(t *testing.T) {
	rng := newRand(t)
	const n = 300
	for typ, of := range integerTypes {
		for _, factor := range []float64{-3, 0, 1, 7, 127, 128, 1 << 40, 1 << 53, 1<<53 + 2, -1 << 63, 0.5, math.NaN(), math.Inf(1)} {
			was := sample(rng, typ, n)
			dst := slices.Clone(was)
			err := Scale(typ, dst, factor)
			k, accuracy := big.NewFloat(0).SetInt64(0).Int(nil)
			whole := !math.IsNaN(factor) && !math.IsInf(factor, 0) && math.Abs(factor) <= 1<<53
			if whole {
				k, accuracy = big.NewFloat(factor).Int(nil)
			}
			fits := whole && accuracy == big.Exact && wrap(typ, new(big.Int).Set(k)).Cmp(k) == 0
			if (err == nil) != fits {
				t.Fatalf("%v by %v: %v", typ, factor, err)
			}
			if err != nil {
				if !bytes.Equal(dst, was) || !strings.Contains(err.Error(), typ.String()) {
					t.Errorf("%v by %v changed elements, or says too little: %v", typ, factor, err)
				}
				continue
			}
			for i := range n {
				want := wrap(typ, new(big.Int).Mul(integerAt(typ, was, i), k))
				if got := integerAt(typ, dst, i); got.Cmp(want) != 0 {
					t.Fatalf("%v (signed: %t): %v * %v is %v, want %v", typ, of.signed, integerAt(typ, was, i), factor, got, want)
				}
			}
		}
	}
}

func TestScaleAndDivideRefuse(t *testing.T) {
	b := []byte{1, 0, 1, 1}
	for what, err := range map[string]error{
		"bools multiplied":   Scale(Bool, b, 2),
		"bools divided":      Divide(Bool, b, 2),
		"no type multiplied": Scale(0, b, 2),
		"no type divided":    Divide(0, b, 2),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if !bytes.Equal(b, []byte{1, 0, 1, 1}) {
		t.Errorf("a refused call changed its elements to %v", b)
	}
}
