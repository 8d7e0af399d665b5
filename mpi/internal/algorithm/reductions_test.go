package algorithm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

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

// Every algorithm of every reduction, on the sizes and, up to 9 ranks, the counts of Gloo's tests.
func TestReductions(t *testing.T) {
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
func TestSegmentedReductions(t *testing.T) {
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
