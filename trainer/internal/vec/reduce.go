package vec

import "math"

// Sum returns the sum of x, added up in float64.
func Sum(x []float32) float64 {
	var total float64
	for len(x) > piece {
		total += best.sum(x[:piece])
		x = x[piece:]
	}
	return total + best.sum(x)
}

// Dot returns the sum of the products of x and y. Products are exact in float64, in which they are added up.
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

func sum(x []float32) float64 {
	var total float64
	for _, v := range x {
		total += float64(v)
	}
	return total
}

func dot(x, y []float32) float64 {
	var total float64
	for i, v := range x {
		total += float64(v) * float64(y[i])
	}
	return total
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
