package nn

import (
	"math"
	"sync"
	"testing"
)

// goroutineSums is the Reducer of one rank. A goroutine adds up the sums of all ranks.
type goroutineSums struct {
	in  chan<- []float64
	out <-chan struct{}
}

func (m goroutineSums) Sum(x []float64) {
	m.in <- x
	<-m.out
}

// newGoroutineSums returns the Reducers of n ranks. stop ends their goroutine, and must be called after all ranks are done.
func newGoroutineSums(n int) (ranks []goroutineSums, stop func()) {
	in, out := make(chan []float64), make(chan struct{})
	for range n {
		ranks = append(ranks, goroutineSums{in, out})
	}
	go func() {
		for first := range in {
			parts := [][]float64{first}
			for len(parts) < n {
				parts = append(parts, <-in)
			}
			for i := range first {
				var sum float64
				for _, p := range parts {
					sum += p[i]
				}
				for _, p := range parts {
					p[i] = sum
				}
			}
			for range n {
				out <- struct{}{}
			}
		}
	}()
	return ranks, func() { close(in) }
}

// Ranks with 5, 0, 1 and 3 samples have the statistics, outputs and gradients of one rank with all 9 samples, even if the mean of a
// channel is a thousand times its deviation.
func TestSyncBatchNormIsThatOfOneBatch(t *testing.T) {
	in := Image{Channels: 3, Height: 2, Width: 2}
	train := Pass{Training: true}
	r := source()
	x, dy := randomMatrix(r, 9, in.Size()), randomMatrix(r, 9, in.Size())
	for i := range x.Data {
		if i/in.plane()%in.Channels == 1 {
			x.Data[i] += 1000
		}
	}
	whole := NewBatchNorm2d(in, nil)
	y := whole.Forward(&train, x)
	dx := whole.Backward(&train, dy, true)

	sizes := []int{5, 0, 1, 3}
	ranks, stop := newGoroutineSums(len(sizes))
	defer stop()
	layers := make([]*BatchNorm, len(sizes))
	var group sync.WaitGroup
	first := 0
	for i, n := range sizes {
		layers[i] = NewBatchNorm2d(in, ranks[i])
		rows := func(m Matrix) Matrix {
			return Matrix{Rows: n, Cols: m.Cols, Data: m.Data[first*m.Cols : (first+n)*m.Cols]}
		}
		mine, mineY, mineDX, mineDY := rows(x), rows(y), rows(dx), rows(dy)
		first += n
		group.Go(func() {
			sameFloats(t, "output", layers[i].Forward(&train, mine).Data, mineY.Data)
			sameFloats(t, "input gradient", layers[i].Backward(&train, mineDY, true).Data, mineDX.Data)
		})
	}
	group.Wait()
	for j, p := range whole.Params() {
		sum := make([]float32, len(p.Grad))
		for _, l := range layers {
			for k, g := range l.Params()[j].Grad {
				sum[k] += g
			}
		}
		sameFloats(t, "the sum of gradients of "+p.Name, sum, p.Grad)
	}
	for j, b := range whole.Buffers() {
		for _, l := range layers {
			sameFloats(t, b.Name, l.Buffers()[j].Value, b.Value)
		}
	}
}

// sameFloats compares within the rounding errors of a few float32 additions of numbers near 1, and of float64 sums in another order.
func sameFloats(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, v := range got {
		if !(math.Abs(float64(v-want[i])) <= 1e-6*max(1, math.Abs(float64(want[i])))) {
			t.Errorf("%s: element %d is %g, want %g", what, i, v, want[i])
		}
	}
}

func TestBatchNormOfOneValueKeepsRunningStatistics(t *testing.T) {
	for _, rows := range []int{0, 1} {
		b := NewBatchNorm1d(2, nil)
		b.bias.Value[1] = 3
		y := b.Forward(&Pass{Training: true}, ones(rows, 2))
		for i, v := range y.Data {
			if v != b.bias.Value[i] {
				t.Errorf("output %d of a single row is %g, want the bias %g", i, v, b.bias.Value[i])
			}
		}
		if b.mean.Value[0] != 0 || b.variance.Value[0] != 1 {
			t.Errorf("%d rows: running statistics are %g and %g, want 0 and 1", rows, b.mean.Value[0], b.variance.Value[0])
		}
	}
}

// LayerNorm gives each row the mean and variance of its parameters, whatever the scale of the input.
func TestLayerNormNormalizes(t *testing.T) {
	l := NewLayerNorm(100)
	x := randomMatrix(source(), 3, 100)
	for i := range x.Row(1) {
		x.Row(1)[i] = 1000 + 100*x.Row(1)[i]
		x.Row(2)[i] = 5
	}
	y := l.Forward(new(Pass), x)
	for i, variance := range []float64{1, 1, 0} {
		var sum, squares float64
		for _, v := range y.Row(i) {
			sum += float64(v)
			squares += float64(v) * float64(v)
		}
		// The 100 elements are near 1. Inputs near 1000 are rounded to 24 bits before they are divided by 70.
		// eps lowers the first variance by 1e-5/0.4.
		if math.Abs(sum/100) > 1e-5 || math.Abs(squares/100-variance) > 1e-4 {
			t.Errorf("row %d has mean %g and variance %g, want 0 and %g", i, sum/100, squares/100, variance)
		}
	}
}
