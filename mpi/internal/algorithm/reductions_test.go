package algorithm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// Every algorithm of every reduction gives the oracle's result, with the sizes of Gloo's tests and, for up to 9 ranks, their counts.
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

// Reductions take buffers of several segments: more than are under way at once, and not a whole number of them.
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
						continue // each algorithm runs once
					}
					c.check(t, localGroups[(size+i)%len(localGroups)], o)
				}
			}
		})
	}
}

// Any size of the group, any length and any order of delivery give the canonical result.
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

// mpichSizes are the numbers of ranks with which MPICH's test/mpi/coll runs.
var mpichSizes = []int{2, 3, 4, 5, 7, 8, 10}

func int64s(n int, f func(i int) int) []byte {
	b := make([]byte, 8*n)
	for i := range n {
		word.PutUint64(b[8*i:], uint64(f(i)))
	}
	return b
}

// Reductions give the values of MPICH's redscat and exscan. The scan's case is like that of exscan.
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

// MPICH's red3 and red4: the product of matrices is the one from left to right, for every root.
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

// Two ranks with few bytes send each other only one message.
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

// A failed wait is returned, wherever it occurs.
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

// If a rank does not come, or comes alone, some rank notices it in the same call.
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

// checkReductionTable checks the properties that all tables have in common.
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

// An algorithm uses only the memory that its port gives it, and allocates none.
func TestReductionsDoNotAllocate(t *testing.T) { // without the race detector
	const n = 4 << 20
	for _, size := range []int{2, 3, 8} {
		p := &idlePort{size: size, scratch: make([]byte, 16*n), handles: make([]Handle, 1<<16)}
		in, out := make([]byte, n), make([]byte, n)
		r := Reduction{Size: 8, Kernel: func(dst, a, b []byte) {}}
		check := func(name string, run func() error) {
			for p.rank = range size {
				// The runtime also allocates from time to time, which an average over two runs does not hide, so the least of several tries
				// decides.
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

// BenchmarkReductionOverhead measures an algorithm's own work on one rank, without messages and kernels.
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
