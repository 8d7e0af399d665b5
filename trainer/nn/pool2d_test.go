package nn

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// Max-pooling gives what its definition says. If several values are the largest, the gradient goes to the first of them.
func TestMaxPoolIsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, w := drawWindow(t, func(kernel int) int { return kernel / 2 })
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		l := NewMaxPool2d(in, MaxPool2dConfig{Kernel: w.kernel, Stride: w.stride, Padding: w.padding})
		taps := w.kernel * w.kernel
		out, rows := l.Out(), rapid.IntRange(0, 4).Draw(t, "rows")
		x, dy := drawMatrix(r, rows, in.Size()), drawMatrix(r, rows, out.Size())
		for i := range x.Data {
			x.Data[i] = float32(math.Round(float64(x.Data[i])))
		}
		y, from, dx := make([]float64, rows*out.Size()), make([]int, rows*out.Size()), make([]float64, rows*in.Size())
		for i := range y {
			y[i] = math.Inf(-1)
		}
		for plane := range rows * in.Channels {
			first, of := plane*out.plane(), plane*in.plane()
			w.each(in, out, func(o, _, at int) {
				if v := float64(x.Data[of+at]); v > y[first+o] {
					y[first+o], from[first+o] = v, of+at
				}
			})
		}
		for i, at := range from {
			dx[at] += float64(dy.Data[i])
		}
		nearlyEqual(t, "y", l.Forward(new(Pass), x).Data, y, 0)
		nearlyEqual(t, "dx", l.Backward(new(Pass), dy, true).Data, dx, taps)
	})
}
