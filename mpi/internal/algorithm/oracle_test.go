package algorithm

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
)

// testOp is an operation with inputs that suit it.
type testOp struct {
	name string
	Reduction
	exact bool // it commutes and is associative: every order gives the same
	fill  func(random *rand.Rand, buf []byte)
}

func words(size int, f func(dst, a, b []byte)) func(dst, a, b []byte) {
	return func(dst, a, b []byte) {
		if len(dst) != len(a) || len(a) != len(b) || len(dst)%size != 0 {
			panic("kernel: lengths do not match")
		}
		for i := 0; i < len(dst); i += size {
			f(dst[i:i+size], a[i:i+size], b[i:i+size])
		}
	}
}

func anyBytes(random *rand.Rand, buf []byte) {
	for len(buf) >= 8 {
		word.PutUint64(buf, random.Uint64())
		buf = buf[8:]
	}
	for i := range buf {
		buf[i] = byte(random.Uint32())
	}
}

var (
	word = binary.LittleEndian

	int64Sum = testOp{"int64 sum", Reduction{words(8, func(dst, a, b []byte) {
		word.PutUint64(dst, word.Uint64(a)+word.Uint64(b))
	}), 8}, true, anyBytes}

	float32Sum = testOp{"float32 sum", Reduction{words(4, func(dst, a, b []byte) {
		x, y := math.Float32frombits(word.Uint32(a)), math.Float32frombits(word.Uint32(b))
		word.PutUint32(dst, math.Float32bits(x+y))
	}), 4}, false, func(random *rand.Rand, buf []byte) {
		for i := 0; i < len(buf); i += 4 {
			x := float32(random.NormFloat64() * math.Exp2(float64(random.IntN(20))))
			word.PutUint32(buf[i:], math.Float32bits(x))
		}
	}}

	// witness is different for every tree and every order of the leaves. Its
	// elements have a size that divides no round number.
	witness = testOp{"witness", Reduction{words(7, func(dst, a, b []byte) {
		x := word.Uint32(a)*2654435761 + 1
		y := word.Uint32(b)*40503 + 7
		z := x ^ bits.RotateLeft32(y, 13)
		copy(dst, []byte{byte(z), byte(z >> 8), byte(z >> 16), byte(z >> 24), a[4] + 3*b[4], a[5] ^ b[6], b[5] + 1})
	}), 7}, false, anyBytes}

	// sparse is a witness in the first bytes of large elements, to test large buffers at little cost.
	sparse = testOp{"sparse witness", Reduction{words(10007, func(dst, a, b []byte) {
		witness.Kernel(dst[:7], a[:7], b[:7])
		copy(dst[7:], b[7:])
	}), 10007}, false, func(random *rand.Rand, buf []byte) {
		for i := 0; i < len(buf); i += 10007 {
			anyBytes(random, buf[i:i+64])
		}
	}}

	// matrices are of 2 x 2 uint64s, and are multiplied modulo 2^64 (MPICH's red3).
	matrixProduct = testOp{"matrix product", Reduction{words(32, func(dst, a, b []byte) {
		var c [4]uint64
		for i := range 4 {
			for k := range 2 {
				c[i] += word.Uint64(a[8*(i/2*2+k):]) * word.Uint64(b[8*(k*2+i%2):])
			}
		}
		for i := range c {
			word.PutUint64(dst[8*i:], c[i])
		}
	}), 32}, false, anyBytes}
)

// oracle knows the canonical results of inputs.
type oracle struct {
	testOp
	inputs [][]byte
	known  map[[2]int][]byte
}

func (op testOp) oracle(inputs [][]byte) *oracle {
	return &oracle{op, inputs, make(map[[2]int][]byte)}
}

// combine is the result of ranks lo to before hi, by the definition: a range is split at the largest power of
// two below its length.
func (o *oracle) combine(lo, hi int) []byte {
	if hi-lo == 1 {
		return o.inputs[lo]
	}
	if out, ok := o.known[[2]int{lo, hi}]; ok {
		return out
	}
	half := 1
	for 2*half < hi-lo {
		half *= 2
	}
	out := make([]byte, len(o.inputs[lo]))
	o.Kernel(out, o.combine(lo, lo+half), o.combine(lo+half, hi))
	o.known[[2]int{lo, hi}] = out
	return out
}

// inputs are what the ranks put in, n elements each.
func (op testOp) inputs(size, n int, seed uint64) [][]byte {
	inputs := make([][]byte, size)
	for rank := range inputs {
		inputs[rank] = make([]byte, n*op.Size)
		op.fill(rand.New(rand.NewPCG(seed, uint64(rank))), inputs[rank])
	}
	return inputs
}
