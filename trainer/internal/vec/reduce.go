package vec

import "math"

// Sum returns the sum of x, added up in float64, in the same order on all machines.
func Sum(x []float32) float64 {
	var total float64
	for len(x) > piece {
		total += best.sum(x[:piece])
		x = x[piece:]
	}
	return total + best.sum(x)
}

// Dot returns the sum of the products of x and y. Products are exact in float64, in which they are added up in the
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

// Max returns the largest element, NaN if any is NaN, -Inf if there is none. Of zeros of both signs either may come
// out.
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

// lanes is how many sums there are of one array: element i is added to sum i mod lanes. That is how many float64 the
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
