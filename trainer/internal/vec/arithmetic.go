package vec

import "math"

// Add computes dst += x.
func Add(dst, x []float32) { each2(best.add, dst, x) }

// AddTo computes dst = x + y.
func AddTo(dst, x, y []float32) { each3(best.addTo, dst, x, y) }

// Mul computes dst = x * y, element by element.
func Mul(dst, x, y []float32) { each3(best.mul, dst, x, y) }

// Scale computes dst *= a.
func Scale(dst []float32, a float32) {
	for len(dst) > piece {
		best.scale(dst[:piece], a)
		dst = dst[piece:]
	}
	best.scale(dst, a)
}

// Axpy computes dst += a x. The product is rounded before it is added.
func Axpy(dst []float32, a float32, x []float32) {
	if len(x) != len(dst) {
		panic(badLength)
	}
	for len(dst) > piece {
		best.axpy(dst[:piece], a, x[:piece])
		dst, x = dst[piece:], x[piece:]
	}
	best.axpy(dst, a, x)
}

func add(dst, x []float32) {
	for i, v := range x {
		dst[i] += v
	}
}

func addTo(dst, x, y []float32) {
	for i, v := range x {
		dst[i] = v + y[i]
	}
}

func mul(dst, x, y []float32) {
	for i, v := range x {
		dst[i] = v * y[i]
	}
}

func scale(dst []float32, a float32) {
	for i := range dst {
		dst[i] *= a
	}
}

func axpy(dst []float32, a float32, x []float32) {
	for i, v := range x {
		dst[i] += float32(a * v)
	}
}

// SumRows adds every row of m, a matrix of len(dst) columns, to dst: the gradient of a bias. Each column is
// added up from the first row to the last.
func SumRows(dst, m []float32) {
	cols := len(dst)
	if cols == 0 && len(m) != 0 || cols != 0 && len(m)%cols != 0 {
		panic("vec: the matrix does not consist of whole rows")
	}
	for len(m) >= 4*cols && len(m) > 0 {
		best.add4(dst, m[:4*cols])
		m = m[4*cols:]
	}
	for len(m) > 0 {
		best.add(dst, m[:cols])
		m = m[cols:]
	}
}

func add4(dst, m []float32) {
	n := len(dst)
	a, b, c, d := m[:n], m[n:2*n], m[2*n:3*n], m[3*n:4*n]
	for i, v := range dst {
		dst[i] = v + a[i] + b[i] + c[i] + d[i]
	}
}

// Sum returns the sum of x, added up in float64, in the same order on all machines.
func Sum(x []float32) float64 {
	var total float64
	for len(x) > piece {
		total += best.sum(x[:piece])
		x = x[piece:]
	}
	return total + best.sum(x)
}

// Dot returns the sum of the products of x and y. The products are exact in float64, and are added up in float64 in the
// same order on all machines.
func Dot(x, y []float32) float64 {
	if len(x) != len(y) {
		panic(badLength)
	}
	var total float64
	for len(x) > piece {
		total += best.dot(x[:piece], y[:piece])
		x, y = x[piece:], y[piece:]
	}
	return total + best.dot(x, y)
}

// SumSquares returns the sum of the squares of x, added up in float64: the square of its norm.
func SumSquares(x []float32) float64 { return Dot(x, x) }

// Max returns the largest element, NaN if any is NaN, -Inf if there is none. If the largest are zeros of both signs, the result may be
// either.
func Max(x []float32) float32 {
	top := float32(math.Inf(-1))
	for len(x) > piece {
		top = max(top, best.max(x[:piece]))
		x = x[piece:]
	}
	return max(top, best.max(x))
}

// Finite reports whether x has neither an infinity nor a NaN.
func Finite(x []float32) bool {
	for len(x) > piece {
		if !best.finite(x[:piece]) {
			return false
		}
		x = x[piece:]
	}
	return best.finite(x)
}

// lanes is the number of partial sums of an array: element i is added to sum i mod lanes. It is how many float64 the
// widest vectors hold, so that all machines can add in this order.
const lanes = 8

func sum(x []float32) float64 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float64
	for len(x) >= lanes {
		a := (*[lanes]float32)(x)
		s0 += float64(a[0])
		s1 += float64(a[1])
		s2 += float64(a[2])
		s3 += float64(a[3])
		s4 += float64(a[4])
		s5 += float64(a[5])
		s6 += float64(a[6])
		s7 += float64(a[7])
		x = x[lanes:]
	}
	s := [lanes]float64{s0, s1, s2, s3, s4, s5, s6, s7}
	for i, v := range x {
		s[i] += float64(v)
	}
	return fold(&s)
}

func dot(x, y []float32) float64 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float64
	for len(x) >= lanes {
		a, b := (*[lanes]float32)(x), (*[lanes]float32)(y)
		s0 += float64(a[0]) * float64(b[0])
		s1 += float64(a[1]) * float64(b[1])
		s2 += float64(a[2]) * float64(b[2])
		s3 += float64(a[3]) * float64(b[3])
		s4 += float64(a[4]) * float64(b[4])
		s5 += float64(a[5]) * float64(b[5])
		s6 += float64(a[6]) * float64(b[6])
		s7 += float64(a[7]) * float64(b[7])
		x, y = x[lanes:], y[lanes:]
	}
	s := [lanes]float64{s0, s1, s2, s3, s4, s5, s6, s7}
	for i, v := range x {
		s[i] += float64(v) * float64(y[i])
	}
	return fold(&s)
}

// fold adds the upper half to the lower one until one number is left.
func fold(s *[lanes]float64) float64 {
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

func largest(x []float32) float32 {
	top := float32(math.Inf(-1))
	for _, v := range x {
		top = max(top, v)
	}
	return top
}

func finite(x []float32) bool {
	const infinity = 0x7f800000
	for _, v := range x {
		if math.Float32bits(v)&infinity == infinity {
			return false
		}
	}
	return true
}
