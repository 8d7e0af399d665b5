package algorithm

import "testing"

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

// MPICH's alltoallv: in[j] is j + 100 rank, and rank i gets i values from each rank. So `rank` values 100 i + rank (rank-1)/2 + j come from
// rank i. MPICH's displacements are i (i+1)/2, which leave a gap after each block. The bounds here leave no gap: block i begins at i
// (i-1)/2.
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

// MPICH's alltoallv0: only the two neighbors get something. As in torch's all_to_all_single with unequal splits, rank i gets i+1 values
// from each of them, which are the sender's rank.
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
