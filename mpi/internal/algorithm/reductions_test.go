package algorithm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Every algorithm of every reduction, on the sizes and, up to 9 ranks, the counts of Gloo's tests.
func TestReductionsGiveTheOraclesResults(t *testing.T) {
	for _, size := range reductionSizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			for i, n := range elementCounts {
				if size > 9 && n > 10 && n != 100 {
					continue
				}
				for _, op := range []testOp{int64Sum, witness} {
					o := op.oracle(op.inputs(size, n, uint64(n)))
					for _, c := range reductionCases(size, n, op.Size) {
						if op.exact || c.canonical {
							c.check(t, localGroups[(i+size)%len(localGroups)], o)
						}
					}
				}
			}
		})
	}
}

// Buffers of several segments: more than are under way at once, and not a whole number.
func TestReductionsTakeManySegments(t *testing.T) {
	const segments = 2*window + 1
	for _, size := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			for i, op := range []testOp{sparse, int64Sum} {
				n := (segments*segmentBytes + 12345) / op.Size
				o := op.oracle(op.inputs(size, n, 1))
				for _, c := range reductionCases(size, n, op.Size) {
					if c.canonical == op.exact || size > 2 && strings.HasPrefix(c.name, "reduce ") && !strings.HasSuffix(c.name, "to 1") {
						continue // each once
					}
					c.check(t, localGroups[(size+i)%len(localGroups)], o)
				}
			}
		})
	}
}

// Any group, any length and any delivery give the canonical result.
func FuzzReductions(f *testing.F) {
	f.Add(uint8(4), uint16(100), uint8(0), uint64(1), true, true)
	f.Add(uint8(10), uint16(3), uint8(7), uint64(2), true, false)
	f.Add(uint8(17), uint16(9000), uint8(3), uint64(3), false, true)
	f.Fuzz(func(t *testing.T, ranks uint8, n uint16, which uint8, seed uint64, lazy, rendezvous bool) {
		size := int(ranks)%40 + 1
		cases := reductionCases(size, int(n), witness.Size)
		c := cases[int(which)%len(cases)]
		op := witness
		if !c.canonical {
			op = int64Sum
			c = reductionCases(size, int(n), op.Size)[int(which)%len(cases)]
		}
		c.check(t, localGroup{Lazy: lazy, Rendezvous: rendezvous, Seed: seed}, op.oracle(op.inputs(size, int(n), seed)))
	})
}

// reductionCase is one algorithm of a reduction as all of them can be tested.
type reductionCase struct {
	name      string
	canonical bool
	cost      func(m Machine, size, n int) float64

	// run gives the rank's result. It does not change in, and fails if the algorithm changes what it may not.
	run func(p Port, in []byte, r Reduction) (out []byte, err error)

	// want is rank's result, given those of ranges of ranks.
	want func(rank int, in []byte, combine func(lo, hi int) []byte) []byte
}

// reductionCases are all algorithms for groups of size ranks with n elements of elementSize bytes each.
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

// bounds are ways to part n elements among the ranks, in bytes: evenly, growing with the rank, and all for one rank.
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

// MPICH's test/mpi/coll runs on these.
var mpichSizes = []int{2, 3, 4, 5, 7, 8, 10}

func int64s(n int, f func(i int) int) []byte {
	b := make([]byte, 8*n)
	for i := range n {
		word.PutUint64(b[8*i:], uint64(f(i)))
	}
	return b
}

// The values of MPICH's redscat and exscan, and of a scan alike.
func TestReductionsGiveMPICHsValues(t *testing.T) {
	const n = 10
	for _, size := range mpichSizes {
		at := bounds(size, size, 8)["evenly"]
		for _, e := range fitting(ReduceScatters(), size) {
			localGroup{}.Run(t, size, func(p *localPort) error {
				out := make([]byte, 8)
				if err := e.Run(p, out, int64s(size, func(i int) int { return p.rank + i }), at, int64Sum.Reduction); err != nil {
					return err
				}
				return same8(out, 1, func(int) int { return size*p.rank + size*(size-1)/2 })
			})
		}
		for _, e := range fitting(Exscans(), size) {
			localGroup{}.Run(t, size, func(p *localPort) error {
				buf := int64s(n, func(i int) int { return p.rank + i*size })
				if err := e.Run(p, buf, int64Sum.Reduction); err != nil || p.rank == 0 {
					return err
				}
				return same8(buf, n, func(i int) int { return p.rank*i*size + p.rank*(p.rank-1)/2 })
			})
		}
		for _, e := range fitting(Scans(), size) {
			localGroup{}.Run(t, size, func(p *localPort) error {
				buf := int64s(n, func(i int) int { return p.rank + i*size })
				if err := e.Run(p, buf, int64Sum.Reduction); err != nil {
					return err
				}
				return same8(buf, n, func(i int) int { return (p.rank+1)*i*size + p.rank*(p.rank+1)/2 })
			})
		}
	}
}

func same8(got []byte, n int, want func(i int) int) error {
	if w := int64s(n, want); !bytes.Equal(got, w) {
		return fmt.Errorf("got %x, want %x", got, w)
	}
	return nil
}

// MPICH's red3 and red4: the product of matrices is that from left to right, for every root.
func TestMatrixProductsGoFromLeftToRight(t *testing.T) {
	for _, size := range mpichSizes {
		inputs := matrixProduct.inputs(size, 3, 4)
		left := slices.Clone(inputs[0])
		for _, in := range inputs[1:] {
			matrixProduct.Kernel(left, left, in)
		}
		for _, c := range reductionCases(size, 3, matrixProduct.Size) {
			if !c.canonical {
				continue
			}
			c.check(t, localGroup{Lazy: true, Seed: 3}, matrixProduct.oracle(inputs))
		}
		for _, e := range Reduces() {
			for root := range size {
				localGroup{}.Run(t, size, func(p *localPort) error {
					buf := slices.Clone(inputs[p.rank])
					err := e.Run(p, buf, root, matrixProduct.Reduction)
					if err == nil && p.rank == root && !bytes.Equal(buf, left) {
						err = fmt.Errorf("%s: another product", e.Name)
					}
					return err
				})
			}
		}
	}
}

// Two ranks and few bytes: nothing but one message each way.
func TestTwoRanksExchangeOneMessageEach(t *testing.T) {
	o := int64Sum.oracle(int64Sum.inputs(2, 1, 6))
	for _, c := range reductionCases(2, 1, 8) {
		if c.name == "allreduce recursive_doubling" {
			if got := c.check(t, localGroup{}, o); got.Messages[0] != 1 || got.Messages[1] != 1 {
				t.Errorf("%v messages", got.Messages)
			}
		}
	}
}

// A failed wait is returned, wherever it happens, and a rank that has failed does not go on.
func TestReductionReturnsAFailedWait(t *testing.T) {
	const n = 20
	for _, size := range []int{2, 3, 4} {
		inputs := int64Sum.inputs(size, n, 8)
		for _, c := range reductionCases(size, n, 8) {
			for rank := range size {
				for wait, failed := 1, true; failed; wait++ {
					_, errs := localGroup{FailRank: rank, FailWait: wait}.Try(size, func(p *localPort) error {
						_, err := c.run(p, inputs[p.rank], int64Sum.Reduction)
						return err
					})
					failed = errs[rank] != nil
					if failed && !errors.Is(errs[rank], errInjected) {
						t.Fatalf("%s, %d ranks: after wait %d failed, rank %d has %v", c.name, size, wait, rank, errs[rank])
					}
				}
			}
		}
	}
}

// A rank that does not come, or comes alone, is noticed by somebody in the same call.
func TestReductionNoticesAnAbsentRank(t *testing.T) {
	const n = 20
	for _, size := range []int{2, 3, 5, 8} {
		for _, n := range []int{0, n} {
			inputs := int64Sum.inputs(size, n, 9)
			for _, c := range reductionCases(size, n, 8) {
				for one := range size {
					comes := func(alone bool) []error {
						_, errs := localGroup{}.Try(size, func(p *localPort) error {
							if (p.rank == one) != alone {
								return nil
							}
							_, err := c.run(p, inputs[p.rank], int64Sum.Reduction)
							return err
						})
						return errs
					}
					if errs := comes(true); errs[one] == nil {
						t.Fatalf("%s, %d elements: rank %d of %d returned alone", c.name, n, one, size)
					}
					if errs := comes(false); errors.Join(slices.Delete(errs, one, one+1)...) == nil {
						t.Fatalf("%s, %d elements: without rank %d of %d, all returned", c.name, n, one, size)
					}
				}
			}
		}
	}
}

// checkReductionTable tests what all tables have in common.
func checkReductionTable[F any](t *testing.T, name string, entries []Entry[F]) {
	t.Helper()
	names, codes, canonical := map[string]bool{}, map[uint8]bool{0: true}, false
	for _, e := range entries {
		if names[e.Name] || codes[e.Code] {
			t.Errorf("%s: a second %q, or code %d", name, e.Name, e.Code)
		}
		names[e.Name], codes[e.Code] = true, true
		canonical = canonical || e.Canonical && e.Fits == nil
		for _, size := range []int{2, 3, 4, 31, 32, 1000, 1024} {
			if e.Fits != nil && !e.Fits(size) {
				continue
			}
			m := Machine{Alpha: 1e-5, Beta: 1e-9, Gamma: 1e-10}
			before := 0.0
			for _, n := range []int{0, 8, 1 << 10, 1 << 20, 1 << 30} {
				cost := e.Cost(m, size, n)
				if cost < before || math.IsNaN(cost) || math.IsInf(cost, 0) || cost == 0 {
					t.Errorf("%s %s: %g s for %d ranks and %d bytes, and %g s for less", name, e.Name, cost, size, n, before)
				}
				before = cost
			}
		}
	}
	if !canonical {
		t.Errorf("%s has no canonical algorithm for every size", name)
	}
}

func TestReductionTablesAreConsistent(t *testing.T) {
	checkReductionTable(t, "all-reduce", AllReduces())
	checkReductionTable(t, "reduce", Reduces())
	checkReductionTable(t, "reduce-scatter", ReduceScatters())
	checkReductionTable(t, "scan", Scans())
	checkReductionTable(t, "exscan", Exscans())
}

// No algorithm allocates anything but what its port gives it.
func TestReductionsDoNotAllocate(t *testing.T) { // without the race detector
	const n = 4 << 20
	for _, size := range []int{2, 3, 8} {
		p := &idlePort{size: size, scratch: make([]byte, 16*n), handles: make([]Handle, 1<<16)}
		in, out := make([]byte, n), make([]byte, n)
		r := Reduction{Size: 8, Kernel: func(dst, a, b []byte) {}}
		check := func(name string, run func() error) {
			for p.rank = range size {
				// The runtime allocates now and then, too, which two runs do not hide: the least of several tries decides.
				least := math.Inf(1)
				for try := 0; try < 5 && least > 0; try++ {
					least = min(least, testing.AllocsPerRun(2, func() {
						if err := run(); err != nil {
							t.Error(err)
						}
					}))
				}
				if least > 0 {
					t.Errorf("%s, rank %d of %d: %v allocations", name, p.rank, size, least)
				}
			}
		}
		for _, e := range fitting(AllReduces(), size) {
			check("allreduce "+e.Name, func() error { return e.Run(p, in, r) })
		}
		for _, e := range fitting(Reduces(), size) {
			check("reduce "+e.Name, func() error { return e.Run(p, in, 1, r) })
		}
		for _, e := range fitting(ReduceScatters(), size) {
			at := bounds(size, n/8, 8)["evenly"]
			check("reduce-scatter "+e.Name, func() error {
				return e.Run(p, out[:at[p.rank+1]-at[p.rank]], in, at, r)
			})
		}
		for _, e := range fitting(Scans(), size) {
			check("scan "+e.Name, func() error { return e.Run(p, in, r) })
		}
		for _, e := range fitting(Exscans(), size) {
			check("exscan "+e.Name, func() error { return e.Run(p, in, r) })
		}
	}
}

// The time of an algorithm's own work on one rank, without that of messages and kernels.
func BenchmarkReductionOverhead(b *testing.B) {
	r := Reduction{Size: 4, Kernel: func(dst, a, b []byte) {}}
	buf := make([]byte, 4)
	for _, size := range []int{2, 8} {
		p := &idlePort{size: size, scratch: make([]byte, 1<<20), handles: make([]Handle, 1<<12)}
		for _, e := range fitting(AllReduces(), size) {
			b.Run(fmt.Sprintf("%s/%d", e.Name, size), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := e.Run(p, buf, r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

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
