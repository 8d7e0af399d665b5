package algorithm

import "ddpbatch/mpi/internal/element"

// Reduction says how buffers are combined.
type Reduction struct {
	Kernel element.Kernel
	Size   int // bytes of an element; buffers are split only between elements
}

// combine stores a op b in dst if lower is set, that is if a comes from the lower ranks. Otherwise it stores b op a.
func (r Reduction) combine(dst, a, b []byte, lower bool) {
	if lower {
		r.Kernel(dst, a, b)
	} else {
		r.Kernel(dst, b, a)
	}
}

// fold combines the parts of ranks in canonical order. The parts are added one rank after another.
//
// It works like a binary counter: parts has the finished subtrees, largest first. Their sizes are the powers of two that sum to the number
// of leaves so far. Adding a leaf carries: as long as the last two subtrees have the same size, they are combined. Combining the rest from
// the right gives the shape in which neighbors are paired at each level and one that is left over moves up.
type fold struct {
	reduction Reduction
	home      []byte // the memory for the result
	leaves    int
	depth     int // the number of parts
	parts     [maxLevels]operand
}

// operand is a subtree's value.
type operand struct {
	buf []byte
	own bool // it includes this rank's leaf
}

// begin starts a new result, for home. The leaf of this rank does not change unless it is home. The memory of the other leaves does,
// because it holds intermediate values. With two leaves or more the result ends in home, because every subtree that includes this rank's
// leaf is stored there.
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

// end combines the remaining subtrees.
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
