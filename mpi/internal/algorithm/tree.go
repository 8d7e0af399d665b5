package algorithm

import "math/bits"

// none is the parent of a tree's root.
const none = -1

// maxLevels bounds the height of a tree over ranks.
const maxLevels = 32

// levels is ceil(log2 size), the height of a tree over the ranks.
func levels(size int) int { return bits.Len(uint(size - 1)) }

// treeNode is where a rank is in a tree that spans the group.
type treeNode struct {
	parent   int // or none
	children []child
}

// child is a rank that sends the value of its subtree.
type child struct {
	rank  int
	lower bool // its ranks are lower than those combined before it
}

// canonicalNode is rank's node in the binomial tree with the given root that combines in canonical order: at each
// level, blocks of m ranks are paired, and of the two ranks that hold the blocks' values one sends its own to
// the other. room is memory for the children: no rank has more than maxLevels.
func canonicalNode(rank, root, size int, room []child) treeNode {
	at := treeNode{parent: none, children: room[:0]}
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

// balancedNode is rank's node in a binary tree over all ranks in which odd ranks are leaves: the parent of
// a rank whose lowest bit is b has the next higher bit there, if there is such a rank. The root is
// rank 0, with one child.
func balancedNode(rank, size int, room []child) treeNode {
	at := treeNode{parent: none, children: room[:0]}
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

// twin gives the numbers from root their positions in the second tree. The root's is the same; the
// order of the others is turned about where that makes leaves, which are odd, of all others, and moved by one elsewhere.
func twin(number, size int) int {
	switch {
	case number == 0:
		return 0
	case size%2 == 1:
		return size - number
	}
	return number%(size-1) + 1
}

// untwin is the reverse of twin.
func untwin(number, size int) int {
	switch {
	case number == 0:
		return 0
	case size%2 == 1:
		return size - number
	}
	return (number+size-3)%(size-1) + 1
}

// binomial is a rank's node in the binomial tree of a group, whose ranks are numbered from the
// root. The parent of number v has v's lowest bit cleared; its children have one of the bits below that
// set, and the subtree of each is the numbers from its own to the next child's.
type binomial struct{ number, size, root int }

func binomialOf(p Port, root int) binomial {
	size := p.Size()
	return binomial{(p.Rank() - root + size) % size, size, root}
}

// rank is the rank of a number.
func (b binomial) rank(number int) int { return (number + b.root) % b.size }

// parent is a rank, or none.
func (b binomial) parent() int {
	if b.number == 0 {
		return none
	}
	return b.rank(b.number & (b.number - 1))
}

// below is the number of ranks of this one's subtree, itself included.
func (b binomial) below() int {
	if b.number == 0 {
		return b.size
	}
	return min(b.number&-b.number, b.size-b.number)
}

// leaf tells of a rank that it has a parent, and no children.
func (b binomial) leaf() bool { return b.number > 0 && b.below() == 1 }

// children is how many there are.
func (b binomial) children() int { return bits.Len(uint(b.widest())) }

// child is the rank of the i'th child. Those of the largest subtrees come first.
func (b binomial) child(i int) int { return b.rank(b.number + b.widest()>>i) }

// subtree is the numbers of the i'th child's subtree, from start to before end.
func (b binomial) subtree(i int) (start, end int) {
	bit := b.widest() >> i
	return b.number + bit, min(b.number+2*bit, b.number+b.below())
}

// widest is the bit of the first child: the largest power of two below below().
func (b binomial) widest() int { return 1 << levels(b.below()) >> 1 }
