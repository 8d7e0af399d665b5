package algorithm

import "math/bits"

// binomial is a rank's place in the binomial tree of a group, whose ranks are numbered from the
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
