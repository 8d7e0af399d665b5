package algorithm

import (
	"bytes"
	"fmt"
	"testing"
)

// Fold keeps the order of the package's documentation, and for 7 leaves that of RFC 6962.
func TestFoldKeepsTheCanonicalOrder(t *testing.T) {
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
