package algorithm

import (
	"fmt"
	"testing"
)

// torch: the root gets 0 to W-1.
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

// MPICH's coll4 to coll6 and gather_big gather different numbers of rows. Here rank r has r+1 values r, but rank 0 has none.
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
