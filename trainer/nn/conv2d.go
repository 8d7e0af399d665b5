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
// It is a product of the weights with the patches of one sample, or of a few small ones, at a time: what a product reads stays in the
// cache, and memory does not grow with the batch. A last row of ones in the patches makes the bias, and its gradient, part of the product.
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
	columns Matrix    // the patches of a group, sample by sample; in Backward their gradient too
	direct  bool      // a group is one sample, whose output a product writes, and whose gradient it reads, where they lie
	joined  Matrix    // where they are else: a row for each channel, sample by sample
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

	l.group = max(1, groupCols/l.out.plane())
	cols := l.group * l.out.plane()
	l.planes = make([]float32, in.Channels*l.patches.planes)
	l.dplanes = make([]float32, len(l.planes))
	l.dense, l.columns = NewMatrix(cfg.Out, rows), NewMatrix(rows, uncrowded(cols))
	l.sums = NewMatrix(rows, cfg.Out)
	l.direct = l.group == 1 && cols%crowded != 0
	if !l.direct {
		l.joined = NewMatrix(cfg.Out, uncrowded(cols))
	}
	ones := l.columns.Data[depth*l.columns.Cols:]
	for i := range ones {
		ones[i] = 1
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
		p.multiply(l.grouped(l.y, first), whole(l.dense), blas.NoTrans, whole(l.columns), blas.NoTrans,
			l.dense.Rows, n*l.out.plane(), l.dense.Cols, 1, 0)
		l.part(l.y, first, n)
	}
	return l.y
}

func whole(m Matrix) view { return view{m.Data, m.Cols} }
