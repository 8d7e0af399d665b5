package algorithm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// reductionCase is one algorithm of one reduction, in a form in which all of them can be tested.
type reductionCase struct {
	name      string
	canonical bool
	cost      func(m Machine, size, n int) float64

	// run returns the rank's result. It does not change in, and fails if the algorithm changes memory that it must not change.
	run func(p Port, in []byte, r Reduction) (out []byte, err error)

	// want returns the rank's result. combine gives those of ranges of ranks.
	want func(rank int, in []byte, combine func(lo, hi int) []byte) []byte
}

// reductionCases returns all algorithms for groups of size ranks with n elements of elementSize bytes each.
func reductionCases(size, n, elementSize int) []reductionCase {
	var cases []reductionCase
	inPlace := func(run func(p Port, buf []byte, r Reduction) error) func(Port, []byte, Reduction) ([]byte, error) {
		return func(p Port, in []byte, r Reduction) ([]byte, error) {
			buf := bytes.Clone(in)
			return buf, run(p, buf, r)
		}
	}
	for _, e := range fitting(AllReduces(), size) {
		cases = append(cases, reductionCase{"allreduce " + e.Name, e.Canonical, e.Cost, inPlace(e.Run),
			func(_ int, _ []byte, combine func(lo, hi int) []byte) []byte { return combine(0, size) }})
	}
	for _, e := range fitting(Reduces(), size) {
		for root := range size {
			if root > 2 && root < size-1 && root != size/2 {
				continue
			}
			cases = append(cases, reductionCase{fmt.Sprintf("reduce %s to %d", e.Name, root), e.Canonical, e.Cost,
				inPlace(func(p Port, buf []byte, r Reduction) error { return e.Run(p, buf, root, r) }),
				func(rank int, in []byte, combine func(lo, hi int) []byte) []byte {
					if rank == root {
						return combine(0, size)
					}
					return in
				}})
		}
	}
	for _, e := range fitting(ReduceScatters(), size) {
		for name, at := range bounds(size, n, elementSize) {
			cases = append(cases, reductionCase{"reduce-scatter " + e.Name + " " + name, e.Canonical, e.Cost,
				func(p Port, in []byte, r Reduction) ([]byte, error) {
					before := bytes.Clone(in)
					out := make([]byte, at[p.Rank()+1]-at[p.Rank()])
					err := e.Run(p, out, in, at, r)
					if err == nil && !bytes.Equal(in, before) {
						err = fmt.Errorf("the input was changed")
					}
					return out, err
				},
				func(rank int, _ []byte, combine func(lo, hi int) []byte) []byte {
					return combine(0, size)[at[rank]:at[rank+1]]
				}})
		}
	}
	for _, e := range fitting(Scans(), size) {
		cases = append(cases, reductionCase{"scan " + e.Name, e.Canonical, e.Cost, inPlace(e.Run),
			func(rank int, _ []byte, combine func(lo, hi int) []byte) []byte { return combine(0, rank+1) }})
	}
	for _, e := range fitting(Exscans(), size) {
		cases = append(cases, reductionCase{"exscan " + e.Name, e.Canonical, e.Cost, inPlace(e.Run),
			func(rank int, in []byte, combine func(lo, hi int) []byte) []byte {
				if rank == 0 {
					return in
				}
				return combine(0, rank)
			}})
	}
	return cases
}

func fitting[F any](entries []Entry[F], size int) []Entry[F] {
	var fit []Entry[F]
	for _, e := range entries {
		if e.Fits == nil || e.Fits(size) {
			fit = append(fit, e)
		}
	}
	return fit
}

// bounds returns ways to divide n elements among the ranks, in bytes: evenly, growing with the rank, and all to one rank.
func bounds(size, n, elementSize int) map[string][]int {
	even, growing, one := make([]int, size+1), make([]int, size+1), make([]int, size+1)
	for i := range size + 1 {
		even[i] = n * i / size * elementSize
		growing[i] = n * i * (i + 1) / (size * (size + 1)) * elementSize
		if i > size/2 {
			one[i] = n * elementSize
		}
	}
	return map[string][]int{"evenly": even, "growing": growing, "to one": one}
}

// check runs the case and compares all ranks' results with the oracle's.
func (c reductionCase) check(t testing.TB, g localGroup, o *oracle) localTraffic {
	t.Helper()
	size := len(o.inputs)
	outs := make([][]byte, size)
	traffic := g.Run(t, size, func(p *localPort) (err error) {
		r := o.Reduction
		r.Kernel = func(dst, a, b []byte) {
			p.Reduce(len(dst))
			o.Kernel(dst, a, b)
		}
		outs[p.rank], err = c.run(p, o.inputs[p.rank], r)
		return err
	})
	for rank, out := range outs {
		if want := c.want(rank, o.inputs[rank], o.combine); !bytes.Equal(out, want) {
			t.Fatalf("%s of %d ranks, %s, %d bytes: rank %d has another result", c.name, size, o.name, len(o.inputs[0]), rank)
		}
	}
	return traffic
}

var (
	reductionSizes = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 24, 32} // Gloo's
	elementCounts  = []int{0, 1, 10, 64, 100, 1000}                   // Gloo's

	localGroups = []localGroup{{}, {Lazy: true, Seed: 1}, {Lazy: true, Rendezvous: true, Seed: 2}}
)

// testOp is an operation with inputs that suit it.
type testOp struct {
	name string
	Reduction
	exact bool // it is commutative and associative: every order gives the same result
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

	// witness gives a different result for every tree and every order of the leaves. The size of its elements divides no round number.
	witness = testOp{"witness", Reduction{words(7, func(dst, a, b []byte) {
		x := word.Uint32(a)*2654435761 + 1
		y := word.Uint32(b)*40503 + 7
		z := x ^ bits.RotateLeft32(y, 13)
		copy(dst, []byte{byte(z), byte(z >> 8), byte(z >> 16), byte(z >> 24), a[4] + 3*b[4], a[5] ^ b[6], b[5] + 1})
	}), 7}, false, anyBytes}

	// sparse has a witness in the first bytes of large elements, to test large buffers at low cost.
	sparse = testOp{"sparse witness", Reduction{words(10007, func(dst, a, b []byte) {
		witness.Kernel(dst[:7], a[:7], b[:7])
		copy(dst[7:], b[7:])
	}), 10007}, false, func(random *rand.Rand, buf []byte) {
		for i := 0; i < len(buf); i += 10007 {
			anyBytes(random, buf[i:i+64])
		}
	}}

	// matrixProduct multiplies 2 x 2 matrices of uint64s modulo 2^64. It is MPICH's red3.
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

// oracle computes the canonical results of inputs.
type oracle struct {
	testOp
	inputs [][]byte
	known  map[[2]int][]byte
}

func (op testOp) oracle(inputs [][]byte) *oracle {
	return &oracle{op, inputs, make(map[[2]int][]byte)}
}

// combine returns the result of the ranks from lo up to but not including hi, by the definition: a range is split at the largest power of
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

// inputs returns the inputs of the ranks, n elements each.
func (op testOp) inputs(size, n int, seed uint64) [][]byte {
	inputs := make([][]byte, size)
	for rank := range inputs {
		inputs[rank] = make([]byte, n*op.Size)
		op.fill(rand.New(rand.NewPCG(seed, uint64(rank))), inputs[rank])
	}
	return inputs
}
