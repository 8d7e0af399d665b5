package maxpool

import "math"

// Nowhere in from marks a result that is the floor, because no value is above it.
const Nowhere = math.MaxUint8

// piece is about how many results one call of assembly computes: Go cannot interrupt it, and the garbage collector waits for it.
const piece = 1 << 15

// block is how many results assembly computes in one iteration. The last iteration of a row may go beyond it; the rows after
// it are computed later.
const block = 8

// Max writes to y, which has rows of width values, the largest of each 2 x 2 values of x, which has twice as many rows of twice the width,
// or floor if that is larger. NaN counts as the largest. from gets which of the four it was (0 and 1 above, 2 and 3 below; the first of
// equal ones), or element if no value is above the floor.
func Max(y []float32, from []uint8, x []float32, width int, floor float32, element uint8) {
	check(y, from, x, width)
	for fast := fastRows(len(y), width); fast > 0; {
		n := min(fast, piece/width+1)
		maxRows(&y[0], &from[0], &x[0], n, width, floor, uint32(element))
		y, from, x, fast = y[n*width:], from[n*width:], x[4*n*width:], fast-n
	}
	plainMax(y, from, x, width, floor, element)
}

// Spread is the inverse of Max: it writes the gradient dy of each result to the element of dx that the result came from, and 0 to the
// others.
func Spread(dx []float32, from []uint8, dy []float32, width int) {
	check(dy, from, dx, width)
	for fast := fastRows(len(dy), width); fast > 0; {
		n := min(fast, piece/width+1)
		spreadRows(&dx[0], &from[0], &dy[0], n, width)
		dy, from, dx, fast = dy[n*width:], from[n*width:], dx[4*n*width:], fast-n
	}
	plainSpread(dx, from, dy, width)
}

func check(small []float32, from []uint8, large []float32, width int) {
	if width < 1 || len(small)%width != 0 || len(from) != len(small) || len(large) != 4*len(small) {
		panic("maxpool: lengths do not fit")
	}
}

// fastRows returns how many rows assembly computes: all but at least the last block of results.
func fastRows(results, width int) int {
	if !assembly {
		return 0
	}
	return results/width - (block+width-1)/width
}

func plainMax(y []float32, from []uint8, x []float32, width int, floor float32, element uint8) {
	for len(y) > 0 {
		above, below := x[:2*width], x[2*width:4*width]
		for j := range width {
			best, at := floor, element
			if v := above[2*j]; v > best || v != v {
				best, at = v, 0
			}
			if v := above[2*j+1]; v > best || v != v {
				best, at = v, 1
			}
			if v := below[2*j]; v > best || v != v {
				best, at = v, 2
			}
			if v := below[2*j+1]; v > best || v != v {
				best, at = v, 3
			}
			y[j], from[j] = best, at
		}
		y, from, x = y[width:], from[width:], x[4*width:]
	}
}

func plainSpread(dx []float32, from []uint8, dy []float32, width int) {
	clear(dx)
	for i, v := range dy {
		if at := int(from[i]); at < 4 {
			dx[i/width*4*width+at/2*2*width+i%width*2+at%2] = v
		}
	}
}
