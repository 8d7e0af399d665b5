package maxpool

import "math"

// Nowhere in from marks a result that no value was above: the floor.
const Nowhere = math.MaxUint8

// piece is about how many results assembly makes at once: Go cannot interrupt it, and the garbage collector waits for it.
const piece = 1 << 15

// block is how many results assembly makes in a step. The last step of a row may go beyond it, and the rows after
// it are made later.
const block = 8

// Max writes to y, of rows of width values, the largest of each 2 x 2 values of x, of twice as many rows twice as wide, or floor
// where that is larger. NaN is the largest of all. from gets which of the four it was (0 and 1 above, 2 and 3 below; the first of equal
// ones), or element where no value is above the floor.
func Max(y []float32, from []uint8, x []float32, width int, floor float32, element uint8) {
	check(y, from, x, width)
	for fast := fastRows(len(y), width); fast > 0; {
		n := min(fast, piece/width+1)
		maxRows(&y[0], &from[0], &x[0], n, width, floor, uint32(element))
		y, from, x, fast = y[n*width:], from[n*width:], x[4*n*width:], fast-n
	}
	plainMax(y, from, x, width, floor, element)
}

// Spread is Max backwards: it writes to dx the gradient dy of each result where that came from, and 0 elsewhere.
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

// fastRows is how many rows are left to assembly: all but the last block of results or more.
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
