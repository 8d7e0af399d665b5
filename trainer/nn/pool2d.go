package nn

import (
	"math"

	"ddpbatch/trainer/nn/internal/maxpool"
)

// MaxPool2dConfig is the shape of a pooling window, with the names of torch.nn.MaxPool2d. The kernel is square.
type MaxPool2dConfig struct {
	Kernel  int  // at most 15
	Stride  int  // 0: Kernel
	Padding int  // at most half of Kernel; padding is never the largest value
	ReLU    bool // pool max(x, 0), like a ReLU followed by the pooling
}

// MaxPool2d is torch.nn.MaxPool2d: the largest value of each window, where NaN counts as the largest. Of equal values, the first
// gets the gradient. It has no parameters.
type MaxPool2d struct {
	stateless
	slidingWindow
	in, out Image
	floor   float32 // the smallest possible result
	element uint8   // what from holds for a result that is the floor
	y, dx   Matrix
	from    []uint8 // for each result, the number of its element in the window, row by row; maxpool.Nowhere: the floor
}

// NewMaxPool2d returns a pooling of images like in.
func NewMaxPool2d(in Image, cfg MaxPool2dConfig) *MaxPool2d {
	if cfg.Stride == 0 {
		cfg.Stride = cfg.Kernel
	}
	if cfg.Kernel > 15 || 2*cfg.Padding > cfg.Kernel {
		panic("nn: a pooling window is larger than 15, or padded by more than half of it")
	}
	l := &MaxPool2d{slidingWindow: slidingWindow{cfg.Kernel, cfg.Stride, cfg.Padding}, in: in}
	l.out = l.over(in, in.Channels)
	if cfg.ReLU {
		l.element = maxpool.Nowhere
	} else {
		l.floor = float32(math.Inf(-1))
	}
	return l
}

// Out returns the geometry of the output.
func (l *MaxPool2d) Out() Image { return l.out }

// Forward returns the largest value of each window.
func (l *MaxPool2d) Forward(_ *Pass, x Matrix) Matrix {
	if x.Cols != l.in.Size() {
		panic("nn: input of a pooling has the wrong width")
	}
	l.y.resize(x.Rows, l.out.Size())
	if cap(l.from) < len(l.y.Data) {
		l.from = make([]uint8, len(l.y.Data))
	}
	l.from = l.from[:len(l.y.Data)]
	if l.tiles() {
		maxpool.Max(l.y.Data, l.from, x.Data, l.out.Width, l.floor, l.element)
		return l.y
	}
	in, out := l.in.plane(), l.out.plane()
	for i := range x.Rows * l.in.Channels {
		l.forward(l.y.Data[i*out:][:out], l.from[i*out:], x.Data[i*in:][:in])
	}
	return l.y
}

// tiles reports whether windows of 2 x 2 values tile the image.
func (l *MaxPool2d) tiles() bool {
	return l.slidingWindow == slidingWindow{kernel: 2, stride: 2} && l.in.Height%2 == 0 && l.in.Width%2 == 0
}

// forward pools one channel of one sample.
func (l *MaxPool2d) forward(y []float32, from []uint8, x []float32) {
	for o := range y {
		a := l.at(l.in, o/l.out.Width, o%l.out.Width)
		best, element := l.floor, l.element
		if element != maxpool.Nowhere { // if all values are -Inf, the first is the largest
			element = l.elementAt(a, a.top, a.left)
		}
		for i := a.top; i < a.bottom; i++ {
			for j := a.left; j < a.right; j++ {
				if v := x[i*l.in.Width+j]; v > best || v != v {
					best, element = v, l.elementAt(a, i, j)
				}
			}
		}
		y[o], from[o] = best, element
	}
}

// elementAt returns which element of the window is at row i and column j of the image.
func (l *MaxPool2d) elementAt(a area, i, j int) uint8 { return uint8((i-a.row)*l.kernel + j - a.col) }

// Backward adds each gradient to that of the input value that was the largest.
func (l *MaxPool2d) Backward(_ *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, l.y)
	if !input {
		return Matrix{}
	}
	l.dx.resize(dy.Rows, l.in.Size())
	if l.tiles() {
		maxpool.Spread(l.dx.Data, l.from, dy.Data, l.out.Width)
		return l.dx
	}
	in, out := l.in.plane(), l.out.plane()
	for i := range dy.Rows * l.in.Channels {
		l.backward(l.dx.Data[i*in:][:in], l.from[i*out:], dy.Data[i*out:][:out])
	}
	return l.dx
}

func (l *MaxPool2d) backward(dx []float32, from []uint8, dy []float32) {
	clear(dx)
	for o, v := range dy {
		if from[o] == maxpool.Nowhere {
			continue
		}
		a, element := l.at(l.in, o/l.out.Width, o%l.out.Width), int(from[o])
		dx[(a.row+element/l.kernel)*l.in.Width+a.col+element%l.kernel] += v
	}
}

// AvgPool2dConfig is the shape of a pooling window, with the names of torch.nn.AvgPool2d. The kernel is square.
type AvgPool2dConfig struct {
	Kernel  int
	Stride  int // 0: Kernel
	Padding int // zeros, at most half of Kernel; they count in the mean, as in PyTorch by default
}

// AvgPool2d is torch.nn.AvgPool2d: the mean of each window. It has no parameters.
type AvgPool2d struct {
	stateless
	slidingWindow
	in, out Image
	y, dx   Matrix
}

// NewAvgPool2d returns a pooling of images like in.
func NewAvgPool2d(in Image, cfg AvgPool2dConfig) *AvgPool2d {
	if cfg.Stride == 0 {
		cfg.Stride = cfg.Kernel
	}
	if 2*cfg.Padding > cfg.Kernel {
		panic("nn: a pooling window is padded by more than half of it")
	}
	l := &AvgPool2d{slidingWindow: slidingWindow{cfg.Kernel, cfg.Stride, cfg.Padding}, in: in}
	l.out = l.over(in, in.Channels)
	return l
}

// Out returns the geometry of the output.
func (l *AvgPool2d) Out() Image { return l.out }

// Forward returns the mean of each window.
func (l *AvgPool2d) Forward(_ *Pass, x Matrix) Matrix {
	if x.Cols != l.in.Size() {
		panic("nn: input of a pooling has the wrong width")
	}
	l.y.resize(x.Rows, l.out.Size())
	size := float32(l.kernel * l.kernel)
	in, out := l.in.plane(), l.out.plane()
	for o := range l.y.Data {
		plane, at := x.Data[o/out*in:][:in], o%out
		a := l.at(l.in, at/l.out.Width, at%l.out.Width)
		var sum float32
		for i := a.top; i < a.bottom; i++ {
			for _, v := range plane[i*l.in.Width+a.left : i*l.in.Width+a.right] {
				sum += v
			}
		}
		l.y.Data[o] = sum / size
	}
	return l.y
}

// Backward distributes each gradient evenly over its window.
func (l *AvgPool2d) Backward(_ *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, l.y)
	if !input {
		return Matrix{}
	}
	l.dx.resize(dy.Rows, l.in.Size())
	clear(l.dx.Data)
	size := float32(l.kernel * l.kernel)
	in, out := l.in.plane(), l.out.plane()
	for o, v := range dy.Data {
		plane, at := l.dx.Data[o/out*in:][:in], o%out
		a := l.at(l.in, at/l.out.Width, at%l.out.Width)
		v /= size
		for i := a.top; i < a.bottom; i++ {
			for j := a.left; j < a.right; j++ {
				plane[i*l.in.Width+j] += v
			}
		}
	}
	return l.dx
}
