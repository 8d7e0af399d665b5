package algorithm

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

// The cases of torch (reference/collectives.md, 4.3) and MPICH (4.5), with their values.

var peerSizes = []int{1, 2, 3, 4, 5, 7, 8, 10}

func encode(values []int) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func wantValues(got []byte, want []int) error {
	var values []int
	for ; len(got) >= 8; got = got[8:] {
		values = append(values, int(binary.LittleEndian.Uint64(got)))
	}
	if !slices.Equal(values, want) {
		return fmt.Errorf("%v, want %v", values, want)
	}
	return nil
}

// ends is the bounds of blocks with counts of values.
func ends(counts []int) []int {
	at := []int{0}
	for _, n := range counts {
		at = append(at, at[len(at)-1]+8*n)
	}
	return at
}

func repeat(value, n int) []int { return slices.Repeat([]int{value}, n) }

// forPeers runs f as every rank, for all entries and sizes that fit.
func forPeers[F any](t *testing.T, entries []Entry[F], f func(p Port, run F) error) {
	for _, e := range entries {
		t.Run(e.Name, func(t *testing.T) {
			for _, size := range peerSizes {
				if e.Fits == nil || e.Fits(size) {
					localGroup{Lazy: true, Seed: uint64(size)}.Run(t, size, func(p *localPort) error { return f(p, e.Run) })
				}
			}
		})
	}
}

// torch: each rank is the root once, with [rank]; and the stress test, with [i W + i%W] from root i%W.
func TestBroadcastAsTorch(t *testing.T) {
	forPeers(t, Broadcasts(), func(p Port, run BroadcastFunc) error {
		for i := range 3 * p.Size() {
			root := i % p.Size()
			buf := encode([]int{p.Rank()})
			want := i*p.Size() + root
			if p.Rank() == root {
				buf = encode([]int{want})
			}
			if err := run(p, buf, root); err != nil {
				return err
			}
			if err := wantValues(buf, []int{want}); err != nil {
				return fmt.Errorf("call %d: %w", i, err)
			}
		}
		return nil
	})
}

// torch: with n = 1, 2, 3 inputs, [n rank + i] makes 0 to n W - 1.
func TestAllGatherAsTorch(t *testing.T) {
	forPeers(t, AllGathers(), func(p Port, run AllGatherFunc) error {
		for n := 1; n <= 3; n++ {
			buf, at := make([]byte, 8*n*p.Size()), ends(repeat(n, p.Size()))
			var want []int
			for i := range n * p.Size() {
				want = append(want, i)
			}
			copy(buf[at[p.Rank()]:at[p.Rank()+1]], encode(want[n*p.Rank():]))
			if err := run(p, buf, at); err != nil {
				return err
			}
			if err := wantValues(buf, want); err != nil {
				return err
			}
		}
		return nil
	})
}

// torch: root gets [0..W-1].
func TestGatherAsTorch(t *testing.T) {
	forPeers(t, Gathers(), func(p Port, run GatherFunc) error {
		for root := range p.Size() {
			var out []byte
			var at, want []int
			if p.Rank() == root {
				out, at = make([]byte, 8*p.Size()), ends(repeat(1, p.Size()))
				for i := range p.Size() {
					want = append(want, i)
				}
			}
			if err := run(p, out, at, encode([]int{p.Rank()}), root); err != nil {
				return err
			}
			if err := wantValues(out, want); err != nil {
				return fmt.Errorf("root %d: %w", root, err)
			}
		}
		return nil
	})
}

// torch: root i sends [i] to all.
func TestScatterAsTorch(t *testing.T) {
	forPeers(t, Scatters(), func(p Port, run ScatterFunc) error {
		for root := range p.Size() {
			var in []byte
			var at []int
			if p.Rank() == root {
				in, at = encode(repeat(root, p.Size())), ends(repeat(1, p.Size()))
			}
			out := make([]byte, 8)
			if err := run(p, out, in, at, root); err != nil {
				return err
			}
			if err := wantValues(out, []int{root}); err != nil {
				return fmt.Errorf("root %d: %w", root, err)
			}
		}
		return nil
	})
}

// MPICH's coll4 to coll6 and gather_big gather rows of different heights: rank r has r+1 values r here, and rank 0 none.
func TestGatherVAsMPICH(t *testing.T) {
	forPeers(t, GathersV(), func(p Port, run GatherFunc) error {
		var out []byte
		var at, want, counts []int
		for r := range p.Size() {
			counts = append(counts, (r+1)*min(r, 1))
			want = append(want, repeat(r, counts[r])...)
		}
		root := p.Size() - 1
		own := encode(repeat(p.Rank(), counts[p.Rank()]))
		if p.Rank() != root {
			want = nil
		} else {
			at = ends(counts)
			out = make([]byte, at[p.Size()])
		}
		if err := run(p, out, at, own, root); err != nil {
			return err
		}
		return wantValues(out, want)
	})
}

// MPICH's alltoall1: value i of the block for rank j is j W + rank + i.
func TestAllToAllAsMPICH(t *testing.T) {
	forPeers(t, AllToAlls(), func(p Port, run AllToAllFunc) error {
		const n = 3
		var in, want []int
		for j := range p.Size() {
			for i := range n {
				in = append(in, j*p.Size()+p.Rank()+i)
				want = append(want, p.Rank()*p.Size()+j+i)
			}
		}
		at, out := ends(repeat(n, p.Size())), make([]byte, 8*n*p.Size())
		if err := run(p, out, at, encode(in), at); err != nil {
			return err
		}
		return wantValues(out, want)
	})
}

// MPICH's alltoallv: of in[i] = i + 100 rank, rank i gets i values; so from rank i come `rank`
// values 100 i + rank (rank+1)/2 + j. Its displacements are i (i+1)/2, which leave a gap after each block: here
// bounds have none, and block i begins at i (i-1)/2.
func TestAllToAllVAsMPICH(t *testing.T) {
	forPeers(t, AllToAllsV(), func(p Port, run AllToAllFunc) error {
		var counts, in, want []int
		for i := range p.Size() {
			counts = append(counts, i)
			for j := range i {
				in = append(in, 100*p.Rank()+i*(i-1)/2+j)
			}
			for j := range p.Rank() {
				want = append(want, 100*i+p.Rank()*(p.Rank()-1)/2+j)
			}
		}
		out := make([]byte, 8*p.Rank()*p.Size())
		if err := run(p, out, ends(repeat(p.Rank(), p.Size())), encode(in), ends(counts)); err != nil {
			return err
		}
		return wantValues(out, want)
	})
}

// MPICH's alltoallv0: only the two neighbours get something. And torch's all_to_all_single with unequal splits: rank i gets
// i+1 values, each the sender's rank.
func TestAllToAllVWithZerosAsMPICH(t *testing.T) {
	forPeers(t, AllToAllsV(), func(p Port, run AllToAllFunc) error {
		size, rank := p.Size(), p.Rank()
		neighbours := func(a, b int) bool { return size > 1 && ((a+1)%size == b || (b+1)%size == a) }
		var gives, gets, in, want []int
		for i := range size {
			give, get := 0, 0
			if neighbours(rank, i) {
				give, get = i+1, rank+1
			}
			gives, gets = append(gives, give), append(gets, get)
			in, want = append(in, repeat(rank, give)...), append(want, repeat(i, get)...)
		}
		at := ends(gets)
		out := make([]byte, at[size])
		if err := run(p, out, at, encode(in), ends(gives)); err != nil {
			return err
		}
		return wantValues(out, want)
	})
}

// No rank leaves a barrier before the last has come to it.
func TestBarrierWaitsForAll(t *testing.T) {
	for _, e := range Barriers() {
		t.Run(e.Name, func(t *testing.T) {
			for size := 2; size <= 9; size++ {
				for late := range size {
					_, errs := localGroup{}.Try(size, func(p *localPort) error {
						if p.rank == late {
							return nil
						}
						return e.Run(p)
					})
					for rank, err := range errs {
						if rank != late && err == nil {
							t.Errorf("of %d ranks, rank %d did not wait for rank %d", size, rank, late)
						}
					}
				}
			}
		})
	}
}
