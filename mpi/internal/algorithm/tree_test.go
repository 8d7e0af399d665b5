package algorithm

import (
	"fmt"
	"testing"
)

// Every rank except the root is the child of its parent and of no other rank, and all paths lead to the root.
func TestTreesReachEveryRankOnce(t *testing.T) {
	for size := 1; size <= 67; size++ {
		nodes := map[string]func(rank int, room []child) treeNode{
			"balanced": func(rank int, room []child) treeNode { return balancedNode(rank, size, room) },
		}
		for root := range size {
			nodes[fmt.Sprintf("canonical to %d", root)] = func(rank int, room []child) treeNode {
				return canonicalNode(rank, root, size, room)
			}
		}
		for name, at := range nodes {
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
