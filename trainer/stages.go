package trainer

import (
	"fmt"
	"math"

	"ddpbatch/trainer/nn"
)

// boundaries passes one row of zeros through layers and returns the shapes before the first, between them, and after the last.
func boundaries(layers *nn.Sequential, inputs int) []boundary {
	x := nn.NewMatrix(1, inputs)
	all := []boundary{{1, inputs}}
	for i := range layers.Len() {
		x = layers.Child(i).Module.Forward(&nn.Pass{}, x)
		all = append(all, boundary{x.Rows, x.Cols})
	}
	return all
}

// cuts splits layers into stages so that the one with the most to compute has as little as it can: stage i is the layers from
// cuts[i] to before cuts[i+1].
func cuts(layers *nn.Sequential, bounds []boundary, stages int) ([]int, error) {
	n := layers.Len()
	if stages > n {
		return nil, fmt.Errorf("pipeline is %d, and the model has %d layers to split: make it smaller", stages, n)
	}
	sums := make([]float64, n+1) // of the costs before each layer
	for i := range n {
		sums[i+1] = sums[i] + cost(layers.Child(i).Module, bounds[i+1])
	}
	// worst[k][end] is the most that one of k stages has, at best, when they take the layers before end.
	worst, cut := make([][]float64, stages+1), make([][]int, stages+1)
	for k := range worst {
		worst[k], cut[k] = make([]float64, n+1), make([]int, n+1)
		for end := range worst[k] {
			worst[k][end] = math.Inf(1)
		}
	}
	worst[0][0] = 0
	for k := 1; k <= stages; k++ {
		for end := k; end <= n; end++ {
			for begin := k - 1; begin < end; begin++ {
				if w := max(worst[k-1][begin], sums[end]-sums[begin]); w < worst[k][end] {
					worst[k][end], cut[k][end] = w, begin
				}
			}
		}
	}
	at := make([]int, stages+1)
	at[stages] = n
	for k := stages; k > 0; k-- {
		at[k-1] = cut[k][at[k]]
	}
	return at, nil
}

// cost estimates the products of a layer: each weight is used once for each row that comes out, and that of a convolution once for
// each pixel of a channel. One is added, so that a layer without weights is not free.
func cost(layer nn.Module, out boundary) float64 {
	sum := 1.0
	for _, p := range layer.Params() {
		uses := out.rows
		switch len(p.Shape) {
		case 4:
			uses = out.rows * out.cols / p.Shape[0]
		case 1:
			continue
		}
		sum += float64(len(p.Value)) * float64(uses)
	}
	return sum
}
