package element

import (
	"fmt"
	"math"
	"math/big"
	"testing"
)

var integerTypes = map[Type]struct {
	bits   uint
	signed bool
}{
	Int8: {8, true}, Int16: {16, true}, Int32: {32, true}, Int64: {64, true},
	Uint8: {8, false}, Uint16: {16, false}, Uint32: {32, false}, Uint64: {64, false},
}

// TestIntegerKernelsAreExact compares kernels with arbitrary-precision arithmetic, cut to the type's bits.
func TestIntegerKernelsAreExact(t *testing.T) {
	exact := map[Op]func(z, x, y *big.Int) *big.Int{
		Sum: (*big.Int).Add, Product: (*big.Int).Mul, Avg: (*big.Int).Add, PreMulSum: (*big.Int).Add,
		BAnd: (*big.Int).And, BOr: (*big.Int).Or, BXor: (*big.Int).Xor,
		Min: func(z, x, y *big.Int) *big.Int {
			if x.Cmp(y) < 0 {
				return z.Set(x)
			}
			return z.Set(y)
		},
		Max: func(z, x, y *big.Int) *big.Int {
			if x.Cmp(y) > 0 {
				return z.Set(x)
			}
			return z.Set(y)
		},
	}
	rng := newRand(t)
	const n = 300
	for typ := range integerTypes {
		a, b, dst := sample(rng, typ, n), sample(rng, typ, n), make([]byte, n*typ.Size())
		for op, exact := range exact {
			kernels[typ][op](dst, a, b)
			for i := range n {
				x, y := integerAt(typ, a, i), integerAt(typ, b, i)
				if got, want := integerAt(typ, dst, i), wrap(typ, exact(new(big.Int), x, y)); got.Cmp(want) != 0 {
					t.Fatalf("%v %v of %v and %v is %v, want %v", typ, op, x, y, got, want)
				}
			}
		}
	}
}

// integerAt reads element i byte by byte, the lowest byte first.
func integerAt(t Type, b []byte, i int) *big.Int {
	z := new(big.Int)
	for k := t.Size() - 1; k >= 0; k-- {
		z.Lsh(z, 8).Or(z, big.NewInt(int64(b[i*t.Size()+k])))
	}
	return wrap(t, z)
}

func wrap(t Type, z *big.Int) *big.Int {
	of := integerTypes[t]
	modulus := new(big.Int).Lsh(big.NewInt(1), of.bits)
	z.Mod(z, modulus)
	if of.signed && z.Bit(int(of.bits)-1) == 1 {
		z.Sub(z, modulus)
	}
	return z
}

// TestFloatKernelsAreExactlyRounded compares float32 kernels with float64, which has more than twice the bits, and float64 kernels with 53
// bits of big.Float.
func TestFloatKernelsAreExactlyRounded(t *testing.T) {
	rng := newRand(t)
	const n = 2000
	for typ, at := range map[Type]func(b []byte, i int) float64{
		Float32: func(b []byte, i int) float64 { return float64(View[float32](b)[i]) },
		Float64: func(b []byte, i int) float64 { return View[float64](b)[i] },
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

// minimum and maximum are those of IEEE 754-2019, 9.6.
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

func TestComplexNumbersAddAndMultiply(t *testing.T) {
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

// TestBoolKernelsTakeNonzeroAsTrue checks all pairs of bytes: anything but 0 is true, and results are 0 or 1.
func TestBoolKernelsTakeNonzeroAsTrue(t *testing.T) {
	or := func(x, y bool) bool { return x || y }
	and := func(x, y bool) bool { return x && y }
	for op, f := range map[Op]func(x, y bool) bool{
		Sum: or, Max: or, BOr: or, Product: and, Min: and, BAnd: and, BXor: func(x, y bool) bool { return x != y },
	} {
		a, b, dst := make([]byte, 1<<16), make([]byte, 1<<16), make([]byte, 1<<16)
		for i := range a {
			a[i], b[i] = byte(i), byte(i>>8)
		}
		kernels[Bool][op](dst, a, b)
		for i, got := range dst {
			want := byte(0)
			if f(byte(i) != 0, byte(i>>8) != 0) {
				want = 1
			}
			if got != want {
				t.Fatalf("%v of bytes %d and %d is %d", op, byte(i), byte(i>>8), got)
			}
		}
	}
}
