package nn

import "gonum.org/v1/gonum/blas"

// Conv2dConfig is the shape of a convolution, in the words of torch.nn.Conv2d. The kernel is square.
type Conv2dConfig struct {
	Out     int // channels
	Kernel  int
	Stride  int // 0: 1
	Padding int // zeros on every side
	NoBias  bool
}

// Conv2d is torch.nn.Conv2d without groups and dilation: "weight" is [out, in, kernel, kernel] and "bias" [out].
//
// It is a product of the weights with the patches of a few samples at a time: what a product reads stays in the cache, and
// memory does not grow with the batch. A last row of ones in the patches makes the bias, and its gradient, part of the product.
type Conv2d struct {
	patches      *patches
	out          Image
	weight, bias *Param // bias is nil with NoBias
	params       []*Param
	x            Matrix // what the last Forward was given
	y, dx        Matrix

	group   int       // samples of one product
	planes  []float32 // of one sample; the padding in them stays 0
	dplanes []float32 // their gradient
	dense   Matrix    // weight and bias side by side
	sums    Matrix    // what a batch adds to the gradient of dense, transposed: so that product is faster
	runs    Matrix    // the patches of a group; in Backward their gradient too
	yRuns   Matrix    // the output of a group
	dyRuns  Matrix    // its gradient; the gaps between rows stay 0
}

// groupCols is about how many columns a product has at least: with fewer, reading the weights takes longer than multiplying; with many more,
// the patches leave the core's own cache.
const groupCols = 256

// NewConv2d returns a convolution of images like in. Weight, then bias, are drawn from U(-1/sqrt(n), 1/sqrt(n)) with
// n = in.Channels * Kernel², as torch.nn.Conv2d does.
func NewConv2d(in Image, cfg Conv2dConfig, src Source) *Conv2d {
	if cfg.Out < 1 {
		panic("nn: a convolution needs at least one output channel")
	}
	if cfg.Stride == 0 {
		cfg.Stride = 1
	}
	w := window{cfg.Kernel, cfg.Stride, cfg.Padding}
	l := &Conv2d{out: w.over(in, cfg.Out), patches: newPatches(in, w)}
	l.weight = newParam("weight", cfg.Out, in.Channels, cfg.Kernel, cfg.Kernel)
	l.params = []*Param{l.weight}
	depth := l.patches.depth()
	var bias []float32
	rows := depth
	if !cfg.NoBias {
		l.bias = newParam("bias", cfg.Out)
		l.params = append(l.params, l.bias)
		bias = l.bias.Value
		rows++
	}
	fanIn(l.weight.Value, bias, depth, src)

	l.group = max(1, groupCols/l.patches.span)
	cols := l.group * l.patches.span
	l.planes = make([]float32, in.Channels*l.patches.planes)
	l.dplanes = make([]float32, len(l.planes))
	l.dense, l.runs = NewMatrix(cfg.Out, rows), NewMatrix(rows, cols)
	l.sums = NewMatrix(rows, cfg.Out)
	l.yRuns, l.dyRuns = NewMatrix(cfg.Out, cols), NewMatrix(cfg.Out, cols)
	for i := range l.runs.Data[depth*cols:] {
		l.runs.Data[depth*cols+i] = 1
	}
	return l
}

// Out is the geometry of the output.
func (l *Conv2d) Out() Image { return l.out }

// Params returns the weight and the bias.
func (l *Conv2d) Params() []*Param { return l.params }

// Buffers returns none.
func (*Conv2d) Buffers() []*Buffer { return nil }

// Forward returns the convolution of each row.
func (l *Conv2d) Forward(p *Pass, x Matrix) Matrix {
	if x.Cols != l.patches.in.Size() {
		panic("nn: input of a convolution has the wrong width")
	}
	l.x = x
	l.y.resize(x.Rows, l.out.Size())
	depth := l.patches.depth()
	for c := range l.dense.Rows {
		copy(l.dense.Row(c), l.weight.Value[c*depth:][:depth])
		if l.bias != nil {
			l.dense.Row(c)[depth] = l.bias.Value[c]
		}
	}
	for first := 0; first < x.Rows; first += l.group {
		n := min(l.group, x.Rows-first)
		l.gather(first, n)
		p.multiply(whole(l.yRuns), whole(l.dense), blas.NoTrans, whole(l.runs), blas.NoTrans,
			l.dense.Rows, n*l.patches.span, l.dense.Cols, 1, 0)
		for i := range n {
			y := l.y.Row(first + i)
			for c := range l.out.Channels {
				l.patches.compact(y[c*l.out.plane():], l.yRuns.Row(c)[i*l.patches.span:])
			}
		}
	}
	return l.y
}

// gather fills runs with the patches of n samples from first on.
func (l *Conv2d) gather(first, n int) {
	for i := range n {
		l.patches.split(l.planes, l.x.Row(first+i))
		l.patches.gather(l.runs.Data[i*l.patches.span:], l.planes, l.runs.Cols)
	}
}

func whole(m Matrix) view { return view{m.Data, m.Cols} }
