package algorithm

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
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
func TestReductionValues(t *testing.T) {
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
func TestMatrixProducts(t *testing.T) {
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

// MPICH's allred_float: large numbers that cancel, in all places. All ranks must have the same bits, and the
// canonical algorithms those of the canonical order.
func TestAllReduceFloat(t *testing.T) {
	const big, tiny = 1e6, 1e-2
	for _, size := range mpichSizes {
		for a := range size {
			b := (a + 1 + a%(size-1)) % size
			if a == b {
				continue
			}
			inputs := make([][]byte, size)
			for rank := range inputs {
				x := float32(tiny)
				switch rank {
				case a:
					x = big
				case b:
					x = -big
				}
				inputs[rank] = word.AppendUint32(nil, math.Float32bits(x))
				inputs[rank] = bytes.Repeat(inputs[rank], 17)
			}
			want := float32Sum.oracle(inputs).combine(0, size)
			for _, e := range fitting(AllReduces(), size) {
				outs := make([][]byte, size)
				localGroup{}.Run(t, size, func(p *localPort) error {
					outs[p.rank] = slices.Clone(inputs[p.rank])
					return e.Run(p, outs[p.rank], float32Sum.Reduction)
				})
				for rank, out := range outs {
					if !bytes.Equal(out, outs[0]) || e.Canonical && !bytes.Equal(out, want) {
						t.Fatalf("%s, %d ranks, +-%g on %d and %d: rank %d has other bits", e.Name, size, big, a, b, rank)
					}
				}
			}
		}
	}
}
