package algorithm

// tray is where a rank has the blocks of its subtree of a binomial tree, by number, while they go up to
// the root or down from it. All blocks have n bytes.
type tray struct {
	binomial
	n     int
	whole []byte // root: all blocks, by rank; others: those of the subtree, by number
	spare []byte // root: those of the one subtree, if there is one, that has both the last rank and rank 0
}

// newTray lays the blocks in all on the root and in own on a leaf, so that they need not be copied; elsewhere in
// scratch memory.
func newTray(p Port, b binomial, n int, all, own []byte) tray {
	t := tray{binomial: b, n: n}
	switch {
	case b.number == 0:
		start, end := t.folded()
		t.whole, t.spare = all, p.Scratch((end-start)*n)
	case b.leaf():
		t.whole = own
	default:
		t.whole = p.Scratch(b.below() * n)
	}
	return t
}

// blocks is those of a subtree, from number start to before end.
func (t tray) blocks(start, end int) []byte {
	first := start - t.number
	if t.number == 0 {
		if first = t.rank(start); first+end-start > t.size {
			return t.spare
		}
	}
	return t.whole[first*t.n : (first+end-start)*t.n]
}

// own is the rank's own block.
func (t tray) own() []byte { return t.blocks(t.number, t.number+1) }

// mine is what the parent has of this rank's: all of its subtree.
func (t tray) mine() []byte { return t.blocks(t.number, t.number+t.below()) }

// folded is the numbers of the root's subtree that has both the last rank and rank 0.
func (t tray) folded() (start, end int) {
	for i := range t.children() {
		if start, end := t.subtree(i); t.rank(start) > t.rank(end-1) {
			return start, end
		}
	}
	return 0, 0
}

// ends is where the two parts of spare belong in the root's blocks.
func (t tray) ends() (last, first []byte) {
	start, _ := t.folded()
	last = t.whole[len(t.whole)-(t.size-t.root-start)*t.n:]
	return last, t.whole[:len(t.spare)-len(last)]
}

// unfold moves what has come in spare to where it belongs.
func (t tray) unfold() {
	if len(t.spare) > 0 {
		last, first := t.ends()
		copy(first, t.spare[copy(last, t.spare):])
	}
}

// fold is the reverse.
func (t tray) fold() {
	if len(t.spare) > 0 {
		last, first := t.ends()
		copy(t.spare[copy(t.spare, last):], first)
	}
}
