package nn

import (
	"math"

	"ddpbatch/trainer/internal/vec"
)

// measure takes the statistics of the batch: the mean first, and the variance from differences to it, so that a mean that is large
// against the deviation costs no accuracy.
func (b *BatchNorm) measure() {
	n := b.channels
	sums := b.sums[:n+1]
	clear(sums)
	sums[n] = float64(b.x.Rows * b.plane)
	for i := range b.x.Rows * n {
		sums[i%n] += vec.Sum(b.part(b.x, i))
	}
	b.reduce(sums)
	b.count = sums[n]
	for c := range n {
		b.center[c] = sums[c] / max(b.count, 1)
	}

	squares := b.sums[:n]
	clear(squares)
	for i := range b.x.Rows * n {
		x := b.part(b.x, i)
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

// centered is the sum of (a - centerA)(b - centerB), in four parts: an addition need not wait for the one before it.
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

// Backward adds to the gradients of weight and bias those of this rank's batch, and returns the input's, which in training is also a
// function of what all other samples have.
func (b *BatchNorm) Backward(p *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, b.y)
	n := b.channels
	bias, weight := b.sums[:n], b.sums[n:2*n] // sums of dy, and of dy times the normalized x
	clear(b.sums)
	for i := range dy.Rows * n {
		c, part := i%n, b.part(dy, i)
		bias[c] += vec.Sum(part)
		weight[c] += float64(centered(part, b.part(b.x, i), 0, b.center[c]) * b.rstd[c])
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

// inputGradient is weight/deviation (dy - mean(dy) - xn mean(dy xn)), where xn is the normalized x.
func (b *BatchNorm) inputGradient(dy Matrix, sums, products []float64) {
	b.dx.resize(dy.Rows, dy.Cols)
	count := max(b.count, 1)
	for i := range dy.Rows * b.channels {
		c := i % b.channels
		scale := float64(b.weight.Value[c]) * b.rstd[c]
		mean, slope := sums[c]/count, products[c]/count*b.rstd[c]
		x, dx := b.part(b.x, i), b.part(b.dx, i)
		for j, v := range b.part(dy, i) {
			dx[j] = float32(scale * (float64(v) - mean - float64(slope*(float64(x[j])-b.center[c]))))
		}
	}
}
