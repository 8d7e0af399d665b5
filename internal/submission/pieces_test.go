package submission

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/slurm"
)

// TestPiecesAreTheWholeArray: every element is in one piece, at an index that the cluster accepts, counted from the offset that the script
// of the piece gets. There are as few pieces as possible, and no more elements run at the same time than wanted.
func TestPiecesAreTheWholeArray(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, most := rapid.IntRange(1, 3000).Draw(t, "n"), rapid.IntRange(1, 1500).Draw(t, "most")
		limit := rapid.SampledFrom([]int{0, n, n + 7}).Draw(t, "limit")
		array := slurm.Array{Limit: limit}
		for i := range n {
			array.Indices = append(array.Indices, i)
		}
		pieces, err := Pieces(array, PieceSize(n, most))
		if err != nil || len(pieces) != (n+most-1)/most {
			t.Fatalf("%d pieces, %v", len(pieces), err)
		}
		var elements []int
		limits := 0
		for _, p := range pieces {
			own, err := slurm.ParseArray(strings.TrimPrefix(p.Words[0], "--array="))
			offset, isNumber := strconv.Atoi(strings.TrimPrefix(p.Words[1], "--export=ALL,DDPBATCH_ARRAY_OFFSET="))
			if most <= 1001 && err != nil || isNumber != nil || len(own.Indices) > most {
				t.Fatalf("%q: %v, %v", p.Words, err, isNumber)
			}
			for _, index := range own.Indices {
				if index >= most {
					t.Fatalf("%q has the index %d, and the cluster takes %d", p.Words, index, most-1)
				}
				elements = append(elements, offset+index)
			}
			limits += own.Limit
		}
		if most <= 1001 && (!slices.Equal(elements, array.Indices) || limits != limit) {
			t.Fatalf("elements %v, limits of %d together", elements, limits)
		}
	})
}

// TestPiecesOfSome: elements that run again keep their indices.
func TestPiecesOfSome(t *testing.T) {
	pieces, err := Pieces(slurm.Array{Indices: []int{1, 3, 9, 11}, Limit: 3}, 4)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range pieces {
		got = append(got, strings.Join(p.Words, " "))
	}
	want := []string{
		"--array=1,3%2 --export=ALL,DDPBATCH_ARRAY_OFFSET=0",
		"--array=1,3%1 --export=ALL,DDPBATCH_ARRAY_OFFSET=8",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := Pieces(slurm.Array{Indices: []int{0, 4}, Limit: 1}, 4); err == nil {
		t.Error("two arrays let one element run at once")
	}
}
