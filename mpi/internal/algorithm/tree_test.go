package algorithm

import (
	"bytes"
	"fmt"
	"testing"
)

// The order of the package's documentation, and of RFC 6962 for 7 leaves.
func TestFoldOrder(t *testing.T) {
	const width = 64
	show := Reduction{Size: width, Kernel: func(dst, a, b []byte) {
		text := fmt.Sprintf("(%s %s)", bytes.TrimRight(a, "."), bytes.TrimRight(b, "."))
		copy(dst, bytes.Repeat([]byte("."), width))
		copy(dst, text)
	}}
	want := map[int]string{
		1: "0",
		2: "(0 1)",
		3: "((0 1) 2)",
		5: "(((0 1) (2 3)) 4)",
		7: "(((0 1) (2 3)) ((4 5) 6))",
		8: "(((0 1) (2 3)) ((4 5) (6 7)))",
	}
	for size, text := range want {
		for me := range size {
			home := bytes.Repeat([]byte("."), width)
			own := bytes.Clone(home)
			own[0] = '0' + byte(me)
			if size == 1 {
				home = own
			}
			f := fold{reduction: show}
			f.begin(home)
			for rank := range size {
				leaf := bytes.Repeat([]byte("."), width)
				leaf[0] = '0' + byte(rank)
				if rank == me {
					leaf = own
				}
				f.add(leaf, rank == me)
			}
			f.end()
			if got := string(bytes.TrimRight(home, ".")); got != text {
				t.Errorf("%d ranks, on rank %d: %s, want %s", size, me, got, text)
			}
			if own[0] != '0'+byte(me) || own[1] != '.' {
				t.Errorf("%d ranks: the leaf of rank %d was changed", size, me)
			}
		}
	}
}

// Every rank but the root is the child of its parent and of nobody else, and all lead to the root.
func TestTreesSpan(t *testing.T) {
	for size := 1; size <= 67; size++ {
		places := map[string]func(rank int, room []child) place{
			"balanced": func(rank int, room []child) place { return balancedPlace(rank, size, room) },
		}
		for root := range size {
			places[fmt.Sprintf("canonical to %d", root)] = func(rank int, room []child) place {
				return canonicalPlace(rank, root, size, room)
			}
		}
		for name, at := range places {
			parents := make([]int, size)
			children := 0
			for rank := range size {
				here := at(rank, make([]child, maxLevels))
				parents[rank] = here.parent
				children += len(here.children)
				for _, c := range here.children {
					if got := at(c.rank, make([]child, maxLevels)).parent; got != rank {
						t.Fatalf("%s, %d ranks: rank %d has the child %d, whose parent is %d", name, size, rank, c.rank, got)
					}
				}
			}
			if children != size-1 {
				t.Fatalf("%s, %d ranks: %d children", name, size, children)
			}
			for rank := range size {
				steps := 0
				for at := rank; parents[at] != none; at = parents[at] {
					if steps++; steps > levels(size) {
						t.Fatalf("%s, %d ranks: rank %d is more than %d levels down", name, size, rank, levels(size))
					}
				}
			}
		}
	}
}

func TestParts(t *testing.T) {
	for _, c := range []struct{ size, length, n int }{{4, 0, 3}, {4, 4, 3}, {7, 700, 9}, {32, 32 * 5, 8}, {3, 3 * 100001, 16}} {
		r, b := Reduction{Size: c.size}, make([]byte, c.length)
		end, shortest, longest := 0, c.length, 0
		for i := range c.n {
			part := r.part(b, i, c.n)
			end += len(part)
			shortest, longest = min(shortest, len(part)), max(longest, len(part))
			if len(part)%c.size != 0 {
				t.Errorf("%+v: part %d is cut within an element", c, i)
			}
		}
		if end != c.length || longest-shortest > c.size || longest != r.widest(c.length, c.n) {
			t.Errorf("%+v: %d bytes in parts of %d to %d, and the widest of %d", c, end, shortest, longest, r.widest(c.length, c.n))
		}
		if k := r.segments(c.length); r.widest(c.length, k) > max(segmentBytes, c.size) {
			t.Errorf("%+v: a segment of %d bytes", c, r.widest(c.length, k))
		}
	}
}

// The distances of Swing's paper: 1, 1, 3, 5, 11, 21, to one side and to the other in turn.
func TestSwingPeers(t *testing.T) {
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
