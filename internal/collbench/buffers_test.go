package collbench

import (
	"slices"
	"testing"
)

// Every collective that moves elements has a call, and the others have none.
func TestCallsAreComplete(t *testing.T) {
	for _, e := range table[float32]() {
		if (e.call != nil) == e.unsized() {
			t.Errorf("%s: there is a call: %v", e.name, e.call != nil)
		}
	}
}

// In an uneven buffer, rank r has the share (r+1) / (1 + 2 + ... + n), rounded to whole elements. The shares add up to the buffer.
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

// In an uneven all-to-all, two ranks send each other the same number of elements. The ranks together send as many elements as in an even
// all-to-all.
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
