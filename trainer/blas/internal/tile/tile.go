package tile

// A tile has Rows x Cols elements, row after row: with AVX-512 that fills 12 registers, with AVX2 it is two passes of 12 of its 16.
const (
	Rows = 4
	Cols = 24
)

// Sums is the sums of a tile.
type Sums = [Rows * Cols]float64

// kernel is one implementation. It does not check lengths.
type kernel struct {
	name  string
	add   func(c *Sums, a, b []float64)
	round func(dst *[Rows * Cols]float32, c *Sums)
}

var plain = kernel{"go", add, round}

// best is the fastest kernel for this CPU.
var best = append(assembly(), plain)[0]

// Add computes c += a b. Panel a holds a matrix of Rows rows column by column, and b one of Cols columns row by row, so the length of a is
// a multiple of Rows, and that of b the same multiple of Cols. Their values must be float32 values. Go cannot interrupt it: a thousand
// columns take some microseconds.
func Add(c *Sums, a, b []float64) {
	if len(a)%Rows != 0 || len(a)/Rows*Cols != len(b) {
		panic("tile: panels do not fit")
	}
	best.add(c, a, b)
}

func add(c *Sums, a, b []float64) {
	for len(a) >= Rows && len(b) >= Cols {
		row := (*[Cols]float64)(b)
		for i, v := range a[:Rows] {
			sums := c[i*Cols:][:Cols]
			for j := range sums {
				sums[j] += v * row[j] // fused or not: the product is exact
			}
		}
		a, b = a[Rows:], b[Cols:]
	}
}

// Round computes dst = c, rounded to nearest, ties to even. It is in assembly because the compiler's conversions wait for each other: the
// instruction keeps the rest of a register.
func Round(dst *[Rows * Cols]float32, c *Sums) { best.round(dst, c) }

func round(dst *[Rows * Cols]float32, c *Sums) {
	for i, v := range c {
		dst[i] = float32(v)
	}
}
