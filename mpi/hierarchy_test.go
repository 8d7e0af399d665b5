package mpi

import (
	"context"
	"path"
	"strconv"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
)

// machines is a store that makes a rank believe that it shares its machine with only those ranks that are in the same run of width ranks,
// and that the others are elsewhere.
type machines struct {
	store.Store
	rank, width int
}

// widthOf returns how many ranks a machine has: half of them if their number is even, else three or two. The last machine has fewer ranks
// only if their number is divisible by neither two nor three.
func widthOf(size int) int {
	switch {
	case size%2 == 0:
		return size / 2
	case size%3 == 0:
		return 3
	}
	return 2
}

func (m machines) Get(ctx context.Context, key string) ([]byte, error) {
	value, err := m.Store.Get(ctx, key)
	if !strings.Contains(key, "transport/") || err != nil {
		return value, err
	}
	rank, err := strconv.Atoi(path.Base(key))
	if rank/m.width == m.rank/m.width {
		return value, err
	}
	words := strings.SplitN(string(value), " ", 3) // the last word names the machine
	words[2] = "another machine"
	return []byte(strings.Join(words, " ")), err
}

// Ranks that are spread evenly over machines reduce within the machines first. If that would not keep the canonical order, naming the
// algorithm is an error.
func TestHierarchyReducesWithinMachinesFirst(t *testing.T) {
	for size, want := range map[int]struct{ is, canonical bool }{
		2: {false, false}, 4: {true, true}, 5: {false, false}, 6: {true, false}, 8: {true, true}, 9: {true, false},
	} {
		t.Run(rankName(size), func(t *testing.T) {
			w := newWorldOn(t, "machines", size, nil)
			if h := w[0].core.hierarchy; (h != nil) != want.is || want.is && h.canonical() != want.canonical {
				t.Fatalf("the hierarchy is %+v, want %+v", h, want)
			}
			must(t, testkit.Each(size, func(rank int) error { return determined(t.Context(), w[rank], kindFloat32, 7) }))
			for rank, err := range testkit.Each(size, func(rank int) error {
				return AllReduce(t.Context(), w[rank].Using(hierarchicalName), []float32{1}, Sum)
			}) {
				if (err == nil) != want.canonical || err != nil && !strings.Contains(err.Error(), `algorithm "hierarchical"`) {
					t.Errorf("by name: rank %d got %v", rank, err)
				}
			}
		})
	}
}
