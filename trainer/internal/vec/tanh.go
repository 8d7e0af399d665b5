package vec

import "math"

// Tanh is dst = tanh(x). The relative error is at most 4e-7.
func Tanh(dst, x []float32) { each2(best.tanh, dst, x) }

// TanhGrad is the gradient of Tanh, whose result was y: dst = dy (1 - y^2).
func TanhGrad(dst, y, dy []float32) { each3(best.tanhGrad, dst, y, dy) }

func tanh(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(math.Tanh(float64(v)))
	}
}

func tanhGrad(dst, y, dy []float32) {
	for i, v := range y {
		dst[i] = dy[i] * (1 - float32(v*v))
	}
}
