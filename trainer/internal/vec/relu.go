package vec

// ReLU is dst = max(x, 0). NaN stays NaN, and -0 stays -0.
func ReLU(dst, x []float32) { each2(best.relu, dst, x) }

// ReLUGrad is the gradient of ReLU, whose result was y: dy where y > 0, elsewhere 0. At 0 it is 0, as in PyTorch.
func ReLUGrad(dst, y, dy []float32) { each3(best.reluGrad, dst, y, dy) }

func relu(dst, x []float32) {
	for i, v := range x {
		if v < 0 {
			v = 0
		}
		dst[i] = v
	}
}

func reluGrad(dst, y, dy []float32) {
	for i, v := range dy {
		if !(y[i] > 0) {
			v = 0
		}
		dst[i] = v
	}
}
