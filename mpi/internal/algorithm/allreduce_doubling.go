package algorithm

// allReduceDoubling is recursive doubling, in canonical order for any size (Thakur,
// Rabenseifner and Gropp 2005, whose treatment of other sizes than powers of two it replaces).
//
// At level k, blocks of m = 2^k ranks are paired, and every rank knows its block's sum. The right
// block of a pair may be short, of s < m ranks: then its rank j takes the sum of the left block's rank j, and
// gives its own to all ranks of the left block that are j modulo s. A last block without a partner moves up.
func allReduceDoubling(p Port, buf []byte, r Reduction) error {
	me, size := p.Rank(), p.Size()
	x := newExchanger(p, buf, r)
	for m := 1; m < size; m *= 2 {
		left := me &^ (2*m - 1)
		right := left + m
		if right >= size {
			continue
		}
		short := min(m, size-right)
		h := hop{from: left + me - right, lower: true, to: left + me - right, stride: short, end: right}
		if me < right {
			i := me - left
			h = hop{from: right + i%short, to: right + i, stride: m, end: right + short}
		}
		if err := x.run(h); err != nil {
			return err
		}
	}
	return nil
}

// costDoubling is L(alpha + n beta + n gamma) with L = ceil(log2 p), and more where a short block serves a long one.
func costDoubling(m Machine, size, n int) float64 {
	var t float64
	for half := 1; half < size; half *= 2 {
		short := size % (2 * half)
		fan := 1
		if short > half {
			fan = (half + short - half - 1) / (short - half)
		}
		t += m.posted(fan) + m.reduced(float64(fan)*m.Beta, n)
	}
	return t
}
