package nn

import "math"

// Momentum of the running statistics, and what is added to a variance: PyTorch's defaults.
const (
	batchNormMomentum = 0.1
	batchNormEps      = 1e-5
)

// Reducer adds up numbers over all ranks. Who implements it keeps the errors: Sum has none to return in the middle of a Backward.
type Reducer interface {
	// Sum replaces each element of x by its sum over ranks. All ranks call it equally often, with x of the same length.
	Sum(x []float64)
}

// BatchNorm is batch normalization (Ioffe and Szegedy, arXiv 1502.03167), as torch.nn.BatchNorm1d and BatchNorm2d: each
// channel minus its mean, divided by its standard deviation, times "weight", plus "bias". In training the statistics are those
// of the batch; in evaluation, those that training has kept in the buffers "running_mean" and "running_var". PyTorch's
// num_batches_tracked, which is only used without momentum, is left out.
//
// With a Reducer the statistics are those of all ranks' batches, as in torch.nn.SyncBatchNorm. Batches may then be unequal, or empty.
type BatchNorm struct {
	channels, plane int
	weight, bias    *Param
	mean, variance  *Buffer
	params          []*Param
	buffers         []*Buffer
	reducer         Reducer // nil: this rank's batch only

	x, y, dx Matrix
	training bool      // in the last Forward
	count    float64   // of values of a channel
	center   []float64 // the mean of each channel that was subtracted
	rstd     []float64 // 1 / standard deviation
	sums     []float64
}

// NewBatchNorm1d returns the normalization of the columns of a batch.
func NewBatchNorm1d(features int, r Reducer) *BatchNorm {
	return NewBatchNorm2d(Image{Channels: features, Height: 1, Width: 1}, r)
}

// NewBatchNorm2d returns the normalization of the channels of images like in. Weights are 1 and biases 0.
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
// than two values per channel, which has none, leaves them as they are.
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
		y := b.part(b.y, i)
		for j, v := range b.part(x, i) {
			y[j] = float32(float64((float64(v)-b.center[c])*scale) + bias)
		}
	}
	return b.y
}

// part returns the i-th of all channels of all samples.
func (b *BatchNorm) part(m Matrix, i int) []float32 { return m.Data[i*b.plane:][:b.plane] }

// reduce replaces sums over this rank's batch by those over all.
func (b *BatchNorm) reduce(sums []float64) {
	if b.reducer != nil {
		b.reducer.Sum(sums)
	}
}
