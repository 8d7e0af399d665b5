package algorithm

// place is a rank's place in a tree that spans the group.
type place struct {
	parent   int // or none
	children []child
}

// none is the parent of a tree's root.
const none = -1

// child is a rank that sends the value of its subtree.
type child struct {
	rank  int
	lower bool // its ranks are lower than those combined before it
}

// canonicalPlace is rank's place in the binomial tree with the given root that combines in canonical order: at each
// level, blocks of m ranks are paired, and of the two ranks that hold the blocks' values one sends its own to
// the other. room is memory for the children: no rank has more than maxLevels.
func canonicalPlace(rank, root, size int, room []child) place {
	at := place{parent: none, children: room[:0]}
	for m := 1; m < size; m *= 2 {
		left := rank &^ (2*m - 1)
		if left+m >= size {
			continue // a last block without a partner moves up
		}
		sibling := holder(rank^m, m, root)
		if holder(rank, 2*m, root) != rank {
			at.parent = sibling
			break
		}
		at.children = append(at.children, child{rank: sibling, lower: sibling < rank})
	}
	return at
}

// holder is who holds the value of rank's block of m ranks: the root if it is one of them, or else the lowest.
func holder(rank, m, root int) int {
	first := rank &^ (m - 1)
	if first == root&^(m-1) {
		return root
	}
	return first
}

// balancedPlace is rank's place in a binary tree over all ranks in which odd ranks are leaves: the parent of
// a rank whose lowest bit is b has the next higher bit there, if there is such a rank. The root is
// rank 0, with one child.
func balancedPlace(rank, size int, room []child) place {
	at := place{parent: none, children: room[:0]}
	bit := 1
	for bit < size && rank&bit == 0 {
		bit *= 2
	}
	if rank > 0 {
		at.parent = rank&^bit | bit<<1
		if at.parent >= size {
			at.parent = rank &^ bit
		}
		if bit > 1 {
			at.children = append(at.children, child{rank: rank - bit/2, lower: true})
		}
	}
	for half := bit / 2; half > 0; half /= 2 {
		if rank+half < size {
			at.children = append(at.children, child{rank: rank + half})
			break
		}
	}
	return at
}
