package algorithm

import "math/bits"

// none is the parent of a tree's root.
const none = -1

// maxLevels bounds the height of a tree over ranks.
const maxLevels = 32

// levels returns ceil(log2 size), the height of a tree over the ranks.
func levels(size int) int { return bits.Len(uint(size - 1)) }

// treeNode is the place of a rank in a tree over the group.
type treeNode struct {
	parent   int // or none
	children []child
}

// child is a rank that sends the value of its subtree.
type child struct {
	rank  int
	lower bool // its subtree has lower ranks than what is combined before
}

// canonicalNode returns rank's node in the binomial tree with the given root that combines in canonical order. At each level, blocks of m
// ranks are paired. Of the two ranks that have the blocks' values, one sends its value to the other. room is memory for the children: a
// rank has at most maxLevels of them.
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

// holder returns the rank that has the value of rank's block of m ranks: root if it is in the block, or else the lowest rank.
func holder(rank, m, root int) int {
	first := rank &^ (m - 1)
	if first == root&^(m-1) {
		return root
	}
	return first
}

// balancedNode returns rank's node in a binary tree over all ranks in which odd ranks are leaves. The parent of a rank whose lowest bit is
// b has the next higher bit set instead, if such a rank exists. The root is rank 0, which has one child.
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

// twin returns the position in the second tree of a number, counted from the root. The root has the same position. For odd sizes, the order
// of the others is reversed, and for even sizes it is shifted by one. Leaves are odd, so a rank that is not a leaf in the
// first tree is one in the second, unless it is the root.
func twin(number, size int) int {
	switch {
	case number == 0:
		return 0
	case size%2 == 1:
		return size - number
	}
	return number%(size-1) + 1
}

// untwin is the inverse of twin.
func untwin(number, size int) int {
	switch {
	case number == 0:
		return 0
	case size%2 == 1:
		return size - number
	}
	return (number+size-3)%(size-1) + 1
}

// binomial is a rank's node in the binomial tree of a group, whose ranks are numbered from the root. The parent of number v is v with its
// lowest bit cleared. Its children are v with one of the lower bits set. The subtree of each child has the numbers from its own to the next
// child's.
type binomial struct{ number, size, root int }

func binomialOf(p Port, root int) binomial {
	size := p.Size()
	return binomial{(p.Rank() - root + size) % size, size, root}
}

// rank returns the rank of a number.
func (b binomial) rank(number int) int { return (number + b.root) % b.size }

// parent returns the parent's rank, or none.
func (b binomial) parent() int {
	if b.number == 0 {
		return none
	}
	return b.rank(b.number & (b.number - 1))
}

// below returns the number of ranks in this rank's subtree, including itself.
func (b binomial) below() int {
	if b.number == 0 {
		return b.size
	}
	return min(b.number&-b.number, b.size-b.number)
}

// leaf reports whether the rank has a parent but no children.
func (b binomial) leaf() bool { return b.number > 0 && b.below() == 1 }

// children returns the number of children.
func (b binomial) children() int { return bits.Len(uint(b.widest())) }

// child returns the rank of the i'th child. Children with larger subtrees come first.
func (b binomial) child(i int) int { return b.rank(b.number + b.widest()>>i) }

// subtree returns the numbers of the i'th child's subtree, from start to before end.
func (b binomial) subtree(i int) (start, end int) {
	bit := b.widest() >> i
	return b.number + bit, min(b.number+2*bit, b.number+b.below())
}

// widest returns the bit of the first child: the largest power of two less than below().
func (b binomial) widest() int { return 1 << levels(b.below()) >> 1 }
