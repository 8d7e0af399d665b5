package distributed

// chain decides which saves are deltas, and which of the two copies is whose: the base stays in memory, the other copy is the
// one to save next. It advances by outcomes, which all ranks learn in the same order.
type chain struct {
	base int // the copy that the newest full checkpoint was made of; -1: none
	used int // deltas since then
}

func newChain() chain { return chain{base: -1} }

// next says what the next save is: into which copy, and whether it is full or a delta to the copy base.
func (c *chain) next(m mode) (copy, base int, full bool) {
	if m.Copies < 2 {
		return 0, -1, true
	}
	copy = 0
	if c.base == 0 {
		copy = 1
	}
	return copy, c.base, c.base < 0 || c.used >= m.Delta
}

// done takes note of how a job ended. After one that failed the next is a full one: what its folder holds is not known.
func (c *chain) done(j *job, ok bool) {
	switch {
	case !ok:
		*c = newChain()
	case j.full:
		*c = chain{base: j.copy}
	default:
		c.used++
	}
}
