package algorithm

import (
	"bytes"
	"math"
	"slices"
	"testing"
)

// The distances are those of Swing's paper: 1, 1, 3, 5, 11, 21, to alternating sides.
func TestSwingDistancesAreThePapers(t *testing.T) {
	const size = 64
	for s, distance := range []int{1, -1, 3, -5, 11, -21} {
		for rank := range size {
			peer := (rank + distance + size) % size
			if rank%2 == 1 {
				peer = (rank - distance + size) % size
			}
			if got := swingPeer(rank, s, size); got != peer || swingPeer(got, s, size) != rank {
				t.Errorf("round %d: rank %d meets %d, want %d", s, rank, got, peer)
			}
		}
	}
}

// reachedLowest returns the lowest rank by its definition: the lowest of all ranks that rank reaches in the rounds from s on.
func reachedLowest(rank, s, size int) int {
	if s >= levels(size) {
		return rank
	}
	return min(reachedLowest(rank, s+1, size), reachedLowest(swingPeer(rank, s, size), s+1, size))
}

func TestSwingLowest(t *testing.T) {
	for size := 1; size <= 256; size *= 2 {
		for rank := range size {
			for s := range levels(size) + 1 {
				if got, want := swingLowest(rank, s, size), reachedLowest(rank, s, size); got != want {
					t.Errorf("%d ranks: rank %d reaches %d from round %d on, want %d", size, rank, got, s, want)
				}
			}
		}
	}
}

// MPICH's allred_float sums large numbers that cancel, at all places. All ranks must get the same bits, and with the canonical algorithms
// those of the canonical order.
func TestAllReduceOfCancellingFloatsAgrees(t *testing.T) {
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
