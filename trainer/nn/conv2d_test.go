package nn

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// convolve computes a convolution by its definition, in float64. For each output it looks up the kernel's elements in x.
func convolve(in, out Image, w slidingWindow, weight, bias []float32, x []float32) []float64 {
	y := make([]float64, out.Size())
	for o := range y {
		c, i, j := o/out.plane(), o%out.plane()/out.Width, o%out.Width
		if bias != nil {
			y[o] = float64(bias[c])
		}
		for k := range in.Channels * w.kernel * w.kernel {
			from, a, b := k/(w.kernel*w.kernel), k/w.kernel%w.kernel, k%w.kernel
			row, col := i*w.stride+a-w.padding, j*w.stride+b-w.padding
			if row >= 0 && row < in.Height && col >= 0 && col < in.Width {
				weight := weight[c*in.Channels*w.kernel*w.kernel+k]
				y[o] += float64(weight) * float64(x[from*in.plane()+row*in.Width+col])
			}
		}
	}
	return y
}

// Conv2d gives what its definition says in any geometry, including strides larger than the kernel, padding larger than the kernel, and
// images so small that a group holds many of them.
func TestConv2dIsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Image{rapid.IntRange(1, 3).Draw(t, "channels"), rapid.IntRange(1, 9).Draw(t, "height"),
			rapid.IntRange(1, 20).Draw(t, "width")}
		padding := rapid.IntRange(0, 4).Draw(t, "padding")
		kernel := rapid.IntRange(1, min(6, min(in.Height, in.Width)+2*padding)).Draw(t, "kernel")
		cfg := Conv2dConfig{Out: rapid.IntRange(1, 4).Draw(t, "out"), Kernel: kernel, Stride: rapid.IntRange(0, 5).Draw(t, "stride"),
			Padding: padding, NoBias: rapid.Bool().Draw(t, "without bias")}
		rows := rapid.IntRange(1, 40).Draw(t, "rows")
		checkConvolution(t, in, cfg, rows, rapid.Uint64().Draw(t, "seed"))
	})
}

// Conv2d also gives what its definition says if a group is one sample. The product then uses the sample where it lies in the batch or, if
// its plane is a multiple of aliasingStride, a copy in other memory.
func TestLargeConv2dIsItsDefinition(t *testing.T) {
	for _, in := range []Image{{2, 17, 16}, {2, 16, 32}} {
		l := checkConvolution(t, in, Conv2dConfig{Out: 3, Kernel: 3, Padding: 1}, 3, 1)
		if l.group != 1 || l.direct != (in.plane()%aliasingStride != 0) {
			t.Errorf("%v: %d samples in a group, direct: %t", in, l.group, l.direct)
		}
	}
}

func checkConvolution(t rapid.TB, in Image, cfg Conv2dConfig, rows int, seed uint64) *Conv2d {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	l := NewConv2d(in, cfg, r)
	var bias []float32
	if !cfg.NoBias {
		bias = l.bias.Value
	}
	x := randomMatrix(r, rows, in.Size())
	var pass Pass
	y := l.Forward(&pass, x)
	for i := range rows {
		want := convolve(in, l.Out(), slidingWindow{cfg.Kernel, max(cfg.Stride, 1), cfg.Padding}, l.weight.Value, bias, x.Row(i))
		for o, v := range y.Row(i) {
			// The output is a sum of at most 108 products below 1, and each sum is rounded to 24 bits.
			if math.Abs(float64(v)-want[o]) > 1e-5 {
				t.Fatalf("row %d: output %d is %g, want %g", i, o, v, want[o])
			}
		}
	}

	// y is linear in x and in the weights, so Backward computes the adjoint: <dy, A x> = <Aᵀ dy, x>.
	dy := randomMatrix(r, rows, y.Cols)
	dx := l.Backward(&pass, dy, true)
	product, constant := dot(dy.Data, y.Data), 0.0
	if bias != nil {
		constant = dot(l.bias.Grad, bias)
	}
	for what, got := range map[string]float64{
		"input": dot(dx.Data, x.Data), "weight": dot(l.weight.Grad, l.weight.Value),
	} {
		if slack := 1e-6 * float64(len(y.Data)+len(x.Data)); math.Abs(got+constant-product) > slack {
			t.Fatalf("%s: gradient times value is %g, want %g", what, got+constant, product)
		}
	}
	return l
}

func dot(a, b []float32) float64 {
	var sum float64
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}

// drawWindow draws the size of an image and a window that fits it.
func drawWindow(t *rapid.T, padding func(kernel int) int) (Image, slidingWindow) {
	size := rapid.IntRange(1, 9)
	in := Image{Channels: rapid.IntRange(1, 3).Draw(t, "channels"), Height: size.Draw(t, "height"), Width: size.Draw(t, "width")}
	w := slidingWindow{kernel: rapid.IntRange(1, 5).Draw(t, "kernel"), stride: rapid.IntRange(1, 5).Draw(t, "stride")}
	w.padding = rapid.IntRange(0, padding(w.kernel)).Draw(t, "padding")
	if in.Height+2*w.padding < w.kernel || in.Width+2*w.padding < w.kernel {
		t.Skip("the window does not fit the image")
	}
	return in, w
}

// each calls visit for every element of the image that a window covers. o is the output's index in its plane, tap the index of the
// kernel's element, and at the index of the element in the image's plane.
func (w slidingWindow) each(in, out Image, visit func(o, tap, at int)) {
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

// nearlyEqual compares sums of n products, each of the size of a few units. It allows each product a rounding of 2^-24 of its size, which
// is too little to hide a missing or an extra product.
func nearlyEqual(t *rapid.T, what string, got []float32, want []float64, n int) {
	t.Helper()
	for i, v := range got {
		if !(math.Abs(float64(v)-want[i]) <= 1e-5+float64(n)*4*0x1p-24) {
			t.Fatalf("%s: element %d is %g, want %g", what, i, v, want[i])
		}
	}
}

// A convolution has the outputs and gradients of its definition. The gradients of three batches add up.
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
