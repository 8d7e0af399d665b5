package element

import (
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

// TestIntegers compares with arbitrary precision, cut to the type's bits.
func TestIntegers(t *testing.T) {
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

// integerAt reads element i byte by byte, the lowest first.
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
