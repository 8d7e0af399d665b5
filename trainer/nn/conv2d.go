package nn

import (
	"gonum.org/v1/gonum/blas"

	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn/internal/block"
)

// Conv2dConfig is the shape of a convolution, with the names of torch.nn.Conv2d. The kernel is square.
type Conv2dConfig struct {
	Out     int // channels
	Kernel  int
	Stride  int // 0: 1
	Padding int // zeros on every side
	NoBias  bool
}

// Conv2d is torch.nn.Conv2d without groups and dilation: "weight" is [out, in, kernel, kernel] and "bias" [out].
//
// It multiplies the weights by the patches of one sample, or of a few small ones, at a time: so the factors of a product stay in the
// cache, and memory does not grow with the batch. A last row of ones in the patches makes the bias, and its gradient, part of the product.
type Conv2d struct {
	parameters
	patches      *patches
	out          Image
	weight, bias *Param // bias is nil with NoBias
	x            Matrix // the input of the last Forward
	y, dx        Matrix

	group   int       // number of samples in one product
	planes  []float32 // of one sample; the padding in them stays 0
	dplanes []float32 // their gradient
	dense   Matrix    // weight and bias side by side
	sums    Matrix    // what a batch adds to the gradient of dense, transposed because that product is faster
	columns Matrix    // the patches of a group, sample by sample; in Backward also their gradient
	direct  bool      // a group is one sample, and products use its output and gradient without copies
	joined  Matrix    // unless direct: the output or its gradient, with a row for each channel, sample by sample
}

// groupCols is about the least number of columns of a product: with fewer, reading the weights takes longer than multiplying; with many
// more, the patches no longer fit in the core's own cache.
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
	w := slidingWindow{cfg.Kernel, cfg.Stride, cfg.Padding}
	l := &Conv2d{out: w.over(in, cfg.Out), patches: newPatches(in, w)}
	l.weight = newParam("weight", cfg.Out, in.Channels, cfg.Kernel, cfg.Kernel)
	l.parameters = parameters{l.weight}
	depth := l.patches.depth()
	var bias []float32
	rows := depth
	if !cfg.NoBias {
		l.bias = newParam("bias", cfg.Out)
		l.parameters = append(l.parameters, l.bias)
		bias = l.bias.Value
		rows++
	}
	fanIn(l.weight.Value, bias, depth, src)

	l.group = max(1, groupCols/l.out.plane())
	cols := l.group * l.out.plane()
	l.planes = make([]float32, in.Channels*l.patches.planes)
	l.dplanes = make([]float32, len(l.planes))
	l.dense, l.columns = NewMatrix(cfg.Out, rows), NewMatrix(rows, padStride(cols))
	l.sums = NewMatrix(rows, cfg.Out)
	l.direct = l.group == 1 && cols%aliasingStride != 0
	if !l.direct {
		l.joined = NewMatrix(cfg.Out, padStride(cols))
	}
	ones := l.columns.Data[depth*l.columns.Cols:]
	for i := range ones {
		ones[i] = 1
	}
	return l
}

// Out returns the geometry of the output.
func (l *Conv2d) Out() Image { return l.out }

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
		l.splitSamples(l.y, first, n)
	}
	return l.y
}

func whole(m Matrix) view { return view{m.Data, m.Cols} }

// Backward adds to the gradients of weight and bias, and returns the gradient of the input.
func (l *Conv2d) Backward(p *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, l.y)
	if input {
		l.dx.resize(l.x.Rows, l.x.Cols)
	}
	clear(l.sums.Data)
	for first := 0; first < dy.Rows; first += l.group {
		n := min(l.group, dy.Rows-first)
		l.gather(first, n)
		l.joinSamples(dy, first, n)
		p.multiply(whole(l.sums), whole(l.columns), blas.NoTrans, l.grouped(dy, first), blas.Trans,
			l.sums.Rows, l.sums.Cols, n*l.out.plane(), 1, 1)
		if input {
			l.inputGradient(p, dy, first, n)
		}
	}
	l.addGradients(p)
	if !input {
		return Matrix{}
	}
	return l.dx
}

// inputGradient sets columns to the gradient of the patches, Wᵀ dy, and adds it up for each value of the input.
func (l *Conv2d) inputGradient(p *Pass, dy Matrix, first, n int) {
	s := l.patches
	depth := s.depth()
	p.multiply(whole(l.columns), view{l.weight.Value, depth}, blas.Trans, l.grouped(dy, first), blas.NoTrans,
		depth, n*l.out.plane(), l.out.Channels, 1, 0)
	for i := range n {
		clear(l.dplanes)
		s.scatter(l.dplanes, l.columns.Data[i*l.out.plane():], l.columns.Cols)
		s.merge(l.dx.Row(first+i), l.dplanes)
	}
}

// addGradients adds the sums over the batch to the parameters' gradients.
func (l *Conv2d) addGradients(p *Pass) {
	depth := l.patches.depth()
	for i := range l.weight.Grad {
		l.weight.Grad[i] += l.sums.Data[i%depth*l.sums.Cols+i/depth]
	}
	p.Done(l.weight)
	if l.bias != nil {
		vec.Add(l.bias.Grad, l.sums.Row(depth))
		p.Done(l.bias)
	}
}

// aliasingStride is a number of values. If rows begin a multiple of it apart, the values below each other share so few lines of the
// cache that they do not stay there. Images of 32 x 32 have such rows.
const aliasingStride = 256

// padStride returns n rounded up to an odd number of cache lines.
func padStride(n int) int {
	const line = 16 // values
	return ((n+line-1)/line | 1) * line
}

// gather fills columns with the patches of n samples from first on.
func (l *Conv2d) gather(first, n int) {
	for i := range n {
		l.patches.split(l.planes, l.x.Row(first+i))
		l.patches.gather(l.columns.Data[i*l.out.plane():], l.planes, l.columns.Cols)
	}
}

// grouped returns the samples of m, the output or its gradient, from first on, as a product uses them: a row for each channel, sample by
// sample.
func (l *Conv2d) grouped(m Matrix, first int) view {
	if l.direct {
		return view{m.Row(first), l.out.plane()}
	}
	return whole(l.joined)
}

// joinSamples copies n samples of m from first on to the place that grouped returns.
func (l *Conv2d) joinSamples(m Matrix, first, n int) {
	for i := 0; i < n && !l.direct; i++ {
		row, joined, size := l.sample(m, first, i)
		block.Copy(joined, row, size)
	}
}

// splitSamples is the inverse of joinSamples.
func (l *Conv2d) splitSamples(m Matrix, first, n int) {
	for i := 0; i < n && !l.direct; i++ {
		row, joined, size := l.sample(m, first, i)
		block.Copy(row, joined, size)
	}
}

// sample returns the places of the i-th sample of a group that is not direct.
func (l *Conv2d) sample(m Matrix, first, i int) (row, joined block.View, size block.Size) {
	plane := l.out.plane()
	return block.View{Data: m.Row(first + i), Pitch: plane}, block.View{Data: l.joined.Data[i*plane:], Pitch: l.joined.Cols},
		block.Size{Rows: l.out.Channels, Width: plane}
}
