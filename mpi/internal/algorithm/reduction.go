package algorithm

import "ddpbatch/mpi/internal/element"

// Reduction is how buffers are combined.
type Reduction struct {
	Kernel element.Kernel
	Size   int // bytes of an element; no buffer is cut within one
}

// combine puts a op b into dst, where a is that of the lower ranks if lower is set and b is otherwise.
func (r Reduction) combine(dst, a, b []byte, lower bool) {
	if lower {
		r.Kernel(dst, a, b)
	} else {
		r.Kernel(dst, b, a)
	}
}

// fold combines the ranks' parts in canonical order as they are added, one rank after the other.
//
// It works like a binary counter: parts holds the finished subtrees, whose sizes are the powers
// of two that make up the number of leaves so far, the largest first. A new leaf is
// carried: as long as the last two subtrees have the same size, they become one. Combining what is left from
// the right gives the shape in which neighbors are paired at each level and one left over moves up.
type fold struct {
	reduction Reduction
	home      []byte // where the result goes
	leaves    int
	depth     int // of parts
	parts     [maxLevels]operand
}

// operand is a subtree's value.
type operand struct {
	buf []byte
	own bool // this rank's leaf is in it
}

// begin starts a new result, for home. The leaf that is this rank's own is not changed unless it is home;
// the memory of the others is, as it holds the values on the way. With two leaves or more the
// result ends in home, because every subtree that has this rank's own leaf is put there.
func (f *fold) begin(home []byte) {
	f.home, f.leaves, f.depth = home, 0, 0
}

// add adds the next rank's leaf.
func (f *fold) add(leaf []byte, own bool) {
	f.parts[f.depth] = operand{leaf, own}
	f.depth++
	for carry := f.leaves; carry&1 == 1; carry >>= 1 {
		f.merge()
	}
	f.leaves++
}

// end combines what is left.
func (f *fold) end() {
	for f.depth > 1 {
		f.merge()
	}
}

func (f *fold) merge() {
	f.depth--
	left, right := &f.parts[f.depth-1], f.parts[f.depth]
	target := left.buf
	if left.own || right.own {
		target = f.home
	}
	f.reduction.Kernel(target, left.buf, right.buf)
	*left = operand{target, left.own || right.own}
}
