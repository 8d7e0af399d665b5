package element

import (
	"fmt"
	"math"
	"math/big"
	"testing"
)

// TestFloats compares float32 with float64, which has more than twice the bits, and
// float64 with 53 bits of big.Float.
func TestFloats(t *testing.T) {
	rng := newRand(t)
	const n = 2000
	for typ, at := range map[Type]func(b []byte, i int) float64{
		Float32: func(b []byte, i int) float64 { return float64(view[float32](b)[i]) },
		Float64: func(b []byte, i int) float64 { return view[float64](b)[i] },
	} {
		a, b, dst := sample(rng, typ, n), sample(rng, typ, n), make([]byte, n*typ.Size())
		for op, exact := range map[Op]func(x, y float64) float64{Sum: exactSum, Product: exactProduct, Min: minimum, Max: maximum} {
			kernels[typ][op](dst, a, b)
			for i := range n {
				want := exact(at(a, i), at(b, i))
				if typ == Float32 {
					want = float64(float32(want))
				}
				if got := at(dst, i); math.Float64bits(got) != math.Float64bits(want) && !(math.IsNaN(got) && math.IsNaN(want)) {
					t.Fatalf("%v %v of %v and %v is %v, want %v", typ, op, at(a, i), at(b, i), got, want)
				}
			}
		}
	}
}

func ordinary(x, y float64) bool {
	finite := !math.IsInf(x, 0) && !math.IsInf(y, 0) && !math.IsNaN(x) && !math.IsNaN(y)
	return finite && x != 0 && y != 0
}

func exactSum(x, y float64) float64 {
	if !ordinary(x, y) || x == -y {
		return x + y
	}
	sum, _ := new(big.Float).SetPrec(5000).Add(big.NewFloat(x), big.NewFloat(y)).Float64()
	return sum
}

func exactProduct(x, y float64) float64 {
	if !ordinary(x, y) {
		return x * y
	}
	product, _ := new(big.Float).SetPrec(200).Mul(big.NewFloat(x), big.NewFloat(y)).Float64()
	return product
}

// minimum and maximum are IEEE 754-2019's, 9.6.
func minimum(x, y float64) float64 {
	switch {
	case math.IsNaN(x) || math.IsNaN(y):
		return math.NaN()
	case x < y || x == y && math.Signbit(x):
		return x
	}
	return y
}

func maximum(x, y float64) float64 { return -minimum(-x, -y) }

func TestComplex(t *testing.T) {
	a := []complex64{complex(1, 2), complex(-3, 0.5)}
	b := []complex64{complex(4, -1), complex(2, 8)}
	for op, want := range map[Op][]complex64{
		Sum:     {complex(5, 1), complex(-1, 8.5)},
		Product: {complex(6, 7), complex(-10, -23)},
	} {
		dst := make([]complex64, len(a))
		kernels[Complex64][op](raw(dst), raw(a), raw(b))
		if fmt.Sprint(dst) != fmt.Sprint(want) {
			t.Errorf("%v is %v, want %v", op, dst, want)
		}
	}
}
