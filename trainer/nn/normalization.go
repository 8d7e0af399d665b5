package nn

import (
	"math"

	"ddpbatch/trainer/internal/vec"
)

// The momentum of the running statistics, and the number that is added to a variance: PyTorch's defaults.
const (
	batchNormMomentum = 0.1
	batchNormEps      = 1e-5
)

// Reducer adds up numbers over all ranks. Sum returns no error, because a Backward could not return it either; implementations keep it.
type Reducer interface {
	// Sum replaces each element of x by its sum over ranks. All ranks must call it the same number of times, with x of the same length.
	Sum(x []float64)
}

// BatchNorm is batch normalization (Ioffe and Szegedy, arXiv 1502.03167), like torch.nn.BatchNorm1d and BatchNorm2d: each
// channel minus its mean, divided by its standard deviation, times "weight", plus "bias". In training it uses the statistics
// of the batch; in evaluation, those that training has kept in the buffers "running_mean" and "running_var". PyTorch's
// num_batches_tracked, which is used only without momentum, is left out.
//
// With a Reducer the statistics are those of all ranks' batches, as in torch.nn.SyncBatchNorm. Batches may then have different sizes, or be
// empty.
type BatchNorm struct {
	channels, plane int
	weight, bias    *Param
	mean, variance  *Buffer
	params          []*Param
	buffers         []*Buffer
	reducer         Reducer // nil: use only this rank's batch

	x, y, dx Matrix
	training bool      // in the last Forward
	count    float64   // number of values of a channel
	center   []float64 // the subtracted mean of each channel
	rstd     []float64 // 1 / standard deviation
	sums     []float64
}

// NewBatchNorm1d returns a normalization of the columns of a batch.
func NewBatchNorm1d(features int, r Reducer) *BatchNorm {
	return NewBatchNorm2d(Image{Channels: features, Height: 1, Width: 1}, r)
}

// NewBatchNorm2d returns a normalization of the channels of images like in. Weights are 1 and biases 0.
func NewBatchNorm2d(in Image, r Reducer) *BatchNorm {
	in.check()
	n := in.Channels
	b := &BatchNorm{channels: n, plane: in.plane(), reducer: r,
		weight: newParam("weight", n), bias: newParam("bias", n),
		mean: newBuffer("running_mean", n), variance: newBuffer("running_var", n),
		center: make([]float64, n), rstd: make([]float64, n), sums: make([]float64, 2*n+1)}
	b.params, b.buffers = []*Param{b.weight, b.bias}, []*Buffer{b.mean, b.variance}
	for i := range n {
		b.weight.Value[i], b.variance.Value[i] = 1, 1
	}
	return b
}

// Params returns the weight and the bias.
func (b *BatchNorm) Params() []*Param { return b.params }

// Buffers returns the running mean and variance.
func (b *BatchNorm) Buffers() []*Buffer { return b.buffers }

// Forward normalizes x. In training it updates the running statistics, with the unbiased variance; a batch of fewer
// than two values per channel, for which that is undefined, leaves them unchanged.
func (b *BatchNorm) Forward(p *Pass, x Matrix) Matrix {
	if x.Cols != b.channels*b.plane {
		panic("nn: input of a batch normalization has the wrong width")
	}
	b.x, b.training = x, p.Training
	if b.training {
		b.measure()
	} else {
		for c := range b.channels {
			b.center[c] = float64(b.mean.Value[c])
			b.rstd[c] = 1 / math.Sqrt(float64(b.variance.Value[c])+batchNormEps)
		}
	}
	b.y.resize(x.Rows, x.Cols)
	for i := range x.Rows * b.channels {
		c := i % b.channels
		scale, bias := float64(b.weight.Value[c])*b.rstd[c], float64(b.bias.Value[c])
		y := b.channel(b.y, i)
		for j, v := range b.channel(x, i) {
			y[j] = float32(float64((float64(v)-b.center[c])*scale) + bias)
		}
	}
	return b.y
}

// channel returns the i-th channel, counted over all samples.
func (b *BatchNorm) channel(m Matrix, i int) []float32 { return m.Data[i*b.plane:][:b.plane] }

// reduce replaces sums over this rank's batch by sums over all ranks' batches.
func (b *BatchNorm) reduce(sums []float64) {
	if b.reducer != nil {
		b.reducer.Sum(sums)
	}
}

// measure computes the statistics of the batch: first the mean, then the variance from differences to the mean, so that accuracy is not
// lost if the mean is large compared with the deviation.
func (b *BatchNorm) measure() {
	n := b.channels
	sums := b.sums[:n+1]
	clear(sums)
	sums[n] = float64(b.x.Rows * b.plane)
	for i := range b.x.Rows * n {
		sums[i%n] += vec.Sum(b.channel(b.x, i))
	}
	b.reduce(sums)
	b.count = sums[n]
	for c := range n {
		b.center[c] = sums[c] / max(b.count, 1)
	}

	squares := b.sums[:n]
	clear(squares)
	for i := range b.x.Rows * n {
		x := b.channel(b.x, i)
		squares[i%n] += centered(x, x, b.center[i%n], b.center[i%n])
	}
	b.reduce(squares)
	for c, sum := range squares {
		b.rstd[c] = 1 / math.Sqrt(sum/max(b.count, 1)+batchNormEps)
		if b.count > 1 {
			follow(&b.mean.Value[c], b.center[c])
			follow(&b.variance.Value[c], sum/(b.count-1))
		}
	}
}

// centered returns the sum of (a - centerA)(b - centerB). It adds up in four parts, so that an addition need not wait for the one before
// it.
func centered(a, b []float32, centerA, centerB float64) float64 {
	var s0, s1, s2, s3 float64
	for ; len(a) >= 4 && len(b) >= 4; a, b = a[4:], b[4:] {
		s0 += float64((float64(a[0]) - centerA) * (float64(b[0]) - centerB))
		s1 += float64((float64(a[1]) - centerA) * (float64(b[1]) - centerB))
		s2 += float64((float64(a[2]) - centerA) * (float64(b[2]) - centerB))
		s3 += float64((float64(a[3]) - centerA) * (float64(b[3]) - centerB))
	}
	for i, v := range a {
		s0 += float64((float64(v) - centerA) * (float64(b[i]) - centerB))
	}
	return s0 + s1 + s2 + s3
}

// follow moves a running statistic towards the batch's.
func follow(running *float32, batch float64) {
	*running = float32(float64((1-batchNormMomentum)*float64(*running)) + float64(batchNormMomentum*batch))
}

// Backward adds to the gradients of weight and bias those of this rank's batch, and returns the input's gradient, which in training also
// depends on all other samples.
func (b *BatchNorm) Backward(p *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, b.y)
	n := b.channels
	bias, weight := b.sums[:n], b.sums[n:2*n] // sums of dy, and of dy times the normalized x
	clear(b.sums)
	for i := range dy.Rows * n {
		c, part := i%n, b.channel(dy, i)
		bias[c] += vec.Sum(part)
		weight[c] += float64(centered(part, b.channel(b.x, i), 0, b.center[c]) * b.rstd[c])
	}
	for c := range n {
		b.weight.Grad[c] += float32(weight[c])
		b.bias.Grad[c] += float32(bias[c])
	}
	p.Done(b.weight)
	p.Done(b.bias)
	if !input {
		return Matrix{}
	}
	if b.training {
		b.reduce(b.sums[:2*n])
	} else {
		clear(b.sums) // running statistics are constants
	}
	b.inputGradient(dy, bias, weight)
	return b.dx
}

// inputGradient computes weight/deviation (dy - mean(dy) - xn mean(dy xn)), where xn is the normalized x.
func (b *BatchNorm) inputGradient(dy Matrix, sums, products []float64) {
	b.dx.resize(dy.Rows, dy.Cols)
	count := max(b.count, 1)
	for i := range dy.Rows * b.channels {
		c := i % b.channels
		scale := float64(b.weight.Value[c]) * b.rstd[c]
		mean, slope := sums[c]/count, products[c]/count*b.rstd[c]
		x, dx := b.channel(b.x, i), b.channel(b.dx, i)
		for j, v := range b.channel(dy, i) {
			dx[j] = float32(scale * (float64(v) - mean - float64(slope*(float64(x[j])-b.center[c]))))
		}
	}
}

// layerNormEps is torch.nn.LayerNorm's default.
const layerNormEps = 1e-5

// LayerNorm is y = (x - mean) / sqrt(variance + 1e-5) * weight + bias with the mean and the (biased) variance of each row,
// torch.nn.LayerNorm (Ba, Kiros, Hinton: Layer Normalization, arXiv 1607.06450).
type LayerNorm struct {
	parameters
	weight, bias *Param
	x            Matrix       // the input of the last Forward
	stats        [][2]float32 // mean and 1/sqrt(variance + eps) of each row of x
	y            Matrix       // the output, and after Backward the input's gradient: the output is not read any more by then
}

// NewLayerNorm returns a normalization of rows of the given width, with weight 1 and bias 0.
func NewLayerNorm(width int) *LayerNorm {
	if width < 1 {
		panic("nn: layer normalization needs at least one column")
	}
	l := &LayerNorm{weight: newParam("weight", width), bias: newParam("bias", width)}
	l.parameters = parameters{l.weight, l.bias}
	for i := range l.weight.Value {
		l.weight.Value[i] = 1
	}
	return l
}

// Forward normalizes each row of x.
func (l *LayerNorm) Forward(_ *Pass, x Matrix) Matrix {
	if x.Cols != len(l.weight.Value) {
		panic("nn: input of a layer normalization has the wrong width")
	}
	l.x = x
	l.y.resize(x.Rows, x.Cols)
	if cap(l.stats) < x.Rows {
		l.stats = make([][2]float32, x.Rows)
	}
	l.stats = l.stats[:x.Rows]
	for i := range x.Rows {
		mean, rstd := vec.Normalize(l.y.Row(i), x.Row(i), l.weight.Value, l.bias.Value, layerNormEps)
		l.stats[i] = [2]float32{mean, rstd}
	}
	return l.y
}

// Backward adds to the gradients of weight and bias and returns the gradient of x.
func (l *LayerNorm) Backward(p *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, l.y)
	for i, s := range l.stats {
		vec.NormalizeGrad(l.y.Row(i), l.weight.Grad, l.bias.Grad, l.x.Row(i), dy.Row(i), l.weight.Value, s[0], s[1])
	}
	p.Done(l.bias)
	p.Done(l.weight)
	if !input {
		return Matrix{}
	}
	return l.y
}
