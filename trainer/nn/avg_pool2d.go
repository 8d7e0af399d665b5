package nn

// AvgPool2dConfig is the shape of a pooling window, in the words of torch.nn.AvgPool2d. The kernel is square.
type AvgPool2dConfig struct {
	Kernel  int
	Stride  int // 0: Kernel
	Padding int // zeros, at most half of Kernel; they count in the mean, as PyTorch's do by default
}

// AvgPool2d is torch.nn.AvgPool2d: the mean of each window. It has no parameters.
type AvgPool2d struct {
	window
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
	l := &AvgPool2d{window: window{cfg.Kernel, cfg.Stride, cfg.Padding}, in: in}
	l.out = l.over(in, in.Channels)
	return l
}

// Out is the geometry of the output.
func (l *AvgPool2d) Out() Image { return l.out }

// Params returns none.
func (*AvgPool2d) Params() []*Param { return nil }

// Buffers returns none.
func (*AvgPool2d) Buffers() []*Buffer { return nil }

// Forward returns the mean of each window.
func (l *AvgPool2d) Forward(_ *Pass, x Matrix) Matrix {
	if x.Cols != l.in.Size() {
		panic("nn: input of a pooling has the wrong width")
	}
	l.y.resize(x.Rows, l.out.Size())
	size := float32(l.kernel * l.kernel)
	in, out := l.in.plane(), l.out.plane()
	for o := range l.y.Data {
		plane, place := x.Data[o/out*in:][:in], o%out
		a := l.at(l.in, place/l.out.Width, place%l.out.Width)
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

// Backward spreads each gradient evenly over its window.
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
		plane, place := l.dx.Data[o/out*in:][:in], o%out
		a := l.at(l.in, place/l.out.Width, place%l.out.Width)
		v /= size
		for i := a.top; i < a.bottom; i++ {
			for j := a.left; j < a.right; j++ {
				plane[i*l.in.Width+j] += v
			}
		}
	}
	return l.dx
}
