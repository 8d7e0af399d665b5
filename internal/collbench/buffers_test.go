package collbench

import (
	"slices"
	"testing"
)

// Every collective that moves elements can be called, and no other.
func TestCallsAreComplete(t *testing.T) {
	for _, e := range table[float32]() {
		if (e.call != nil) == e.unsized() {
			t.Errorf("%s: there is a call: %v", e.name, e.call != nil)
		}
	}
}

// Rank r's share of an uneven buffer is r+1 of 1 + 2 + ... + n, but for what is less than an element, and all shares are the buffer.
func TestUnevenBlocksGrowWithTheRank(t *testing.T) {
	for _, tt := range []struct {
		count   int
		lengths []int
	}{
		{50, []int{25, 50, 75}}, {8, []int{3, 6, 10, 13}}, {1, []int{0, 2}}, {16, []int{10, 22}}, {7, []int{7}},
	} {
		s := buffers[float32]{b: &bench{ranks: len(tt.lengths), o: Options{collective: collectiveNamed("allgatherv")}}}
		if got := s.counts(tt.count); !slices.Equal(got, tt.lengths) {
			t.Errorf("%d elements for each of %d ranks: blocks of %v, want %v", tt.count, len(tt.lengths), got, tt.lengths)
		}
	}
}

// Of an uneven all-to-all each rank sends another as much as it gets from it, and all together as much as an even one does.
func TestUnevenAllToAllIsAsLongForAllRanks(t *testing.T) {
	counts := []int{3, 6, 10, 13}
	for rank := range counts {
		own := turned(counts, rank)
		if sent := boundsOf(own)[len(counts)]; sent != 32 {
			t.Errorf("rank %d sends %d elements, want 32", rank, sent)
		}
		for other := range counts {
			if back := turned(counts, other)[rank]; own[other] != back {
				t.Errorf("rank %d sends rank %d %d elements and gets %d", rank, other, own[other], back)
			}
		}
	}
}
