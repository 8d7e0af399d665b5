package nn

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// drawWindow draws an image and a window that fits it.
func drawWindow(t *rapid.T, padding func(kernel int) int) (Image, window) {
	size := rapid.IntRange(1, 9)
	in := Image{Channels: rapid.IntRange(1, 3).Draw(t, "channels"), Height: size.Draw(t, "height"), Width: size.Draw(t, "width")}
	w := window{kernel: rapid.IntRange(1, 5).Draw(t, "kernel"), stride: rapid.IntRange(1, 5).Draw(t, "stride")}
	w.padding = rapid.IntRange(0, padding(w.kernel)).Draw(t, "padding")
	if in.Height+2*w.padding < w.kernel || in.Width+2*w.padding < w.kernel {
		t.Skip("the window does not fit the image")
	}
	return in, w
}

// each calls visit with every element of the image that each window covers: output o is at plane position out, the element of the
// kernel is tap, that of the image's plane is at.
func (w window) each(in, out Image, visit func(o, tap, at int)) {
	for o := range out.plane() {
		for tap := range w.kernel * w.kernel {
			row := o/out.Width*w.stride - w.padding + tap/w.kernel
			col := o%out.Width*w.stride - w.padding + tap%w.kernel
			if row >= 0 && col >= 0 && row < in.Height && col < in.Width {
				visit(o, tap, row*in.Width+col)
			}
		}
	}
}

func drawMatrix(r *rand.Rand, rows, cols int) Matrix {
	m := NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64())
	}
	return m
}

// nearlyEqual allows sums of n products, of some units each, a rounding of 2^-24 of such a unit for each. One that is missing or
// too many is seen.
func nearlyEqual(t *rapid.T, what string, got []float32, want []float64, n int) {
	t.Helper()
	for i, v := range got {
		if !(math.Abs(float64(v)-want[i]) <= 1e-5+float64(n)*4*0x1p-24) {
			t.Fatalf("%s: element %d is %g, want %g", what, i, v, want[i])
		}
	}
}

// Convolutions against their definition: three batches, whose gradients add up.
func TestConvolutionIsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, w := drawWindow(t, func(int) int { return 5 })
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		cfg := Conv2dConfig{Out: rapid.IntRange(1, 3).Draw(t, "out"), Kernel: w.kernel, Stride: w.stride, Padding: w.padding}
		l := NewConv2d(in, cfg, r)
		pass, out, taps, windows := Pass{Training: true}, l.Out(), w.kernel*w.kernel, 0
		dw, db := make([]float64, len(l.weight.Value)), make([]float64, cfg.Out)
		for range 3 {
			rows := rapid.SampledFrom([]int{0, 1, 5, 30}).Draw(t, "rows")
			windows += rows * out.plane()
			x, dy := drawMatrix(r, rows, in.Size()), drawMatrix(r, rows, out.Size())
			y, dx := make([]float64, rows*out.Size()), make([]float64, rows*in.Size())
			for i := range y {
				channel := i / out.plane() % out.Channels
				y[i] = float64(l.bias.Value[channel])
				db[channel] += float64(dy.Data[i])
			}
			for pair := range rows * out.Channels * in.Channels { // a sample, an output and an input channel
				c, sample := pair%in.Channels, pair/in.Channels/out.Channels
				k := pair / in.Channels % out.Channels
				first, from, weight := (sample*out.Channels+k)*out.plane(), (sample*in.Channels+c)*in.plane(), (k*in.Channels+c)*taps
				w.each(in, out, func(o, tap, at int) {
					y[first+o] += float64(l.weight.Value[weight+tap]) * float64(x.Data[from+at])
					dw[weight+tap] += float64(dy.Data[first+o]) * float64(x.Data[from+at])
					dx[from+at] += float64(dy.Data[first+o]) * float64(l.weight.Value[weight+tap])
				})
			}
			nearlyEqual(t, "y", l.Forward(&pass, x).Data, y, taps*in.Channels)
			nearlyEqual(t, "dx", l.Backward(&pass, dy, true).Data, dx, taps*out.Channels)
		}
		nearlyEqual(t, "dw", l.weight.Grad, dw, windows)
		nearlyEqual(t, "db", l.bias.Grad, db, windows)
	})
}

// Max-pooling against its definition, with many equal values: the gradient goes to the first of them.
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
