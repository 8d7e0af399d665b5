package nn

import (
	"math"
	"slices"
	"testing"

	tblas "ddpbatch/trainer/blas"
)

func TestNumericalEdges(t *testing.T) {
	var pass Pass
	nan := float32(math.NaN())
	t.Run("relu keeps NaN", func(t *testing.T) {
		y := NewReLU().Forward(&pass, Matrix{Rows: 1, Cols: 3, Data: []float32{nan, -1, 2}})
		if y.Data[0] == y.Data[0] || y.Data[1] != 0 || y.Data[2] != 2 {
			t.Errorf("relu(NaN, -1, 2) = %v", y.Data)
		}
	})
	t.Run("cross entropy of huge logits", func(t *testing.T) {
		// By hand: softmax is (1, 0, 0) to the last bit, so the loss of label 0 is 0, of label 1 it is 2000.
		var l CrossEntropy
		logits := Matrix{Rows: 2, Cols: 3, Data: []float32{1000, -1000, -1000, 1000, -1000, -1000}}
		loss, grad := l.Loss(logits, []int{0, 1})
		if loss != 1000 {
			t.Errorf("loss is %g, want 1000", loss)
		}
		if want := []float32{0, 0, 0, .5, -.5, 0}; !slices.Equal(grad.Data, want) {
			t.Errorf("gradient is %v, want %v", grad.Data, want)
		}
	})
	t.Run("NaN logit gives NaN loss", func(t *testing.T) {
		var l CrossEntropy
		for _, logits := range [][]float32{{nan, 1}, {1, nan}} {
			if loss, _ := l.Loss(Matrix{Rows: 1, Cols: 2, Data: logits}, []int{1}); !math.IsNaN(loss) {
				t.Errorf("loss of %v is %g, want NaN", logits, loss)
			}
		}
	})
	t.Run("mse by hand", func(t *testing.T) {
		var l MSE
		loss, grad := l.Loss(Matrix{Rows: 1, Cols: 2, Data: []float32{3, 1}}, Matrix{Rows: 1, Cols: 2, Data: []float32{1, 2}})
		if loss != 2.5 || !slices.Equal(grad.Data, []float32{2, -1}) {
			t.Errorf("loss %g and gradient %v, want 2.5 and [2 -1]", loss, grad.Data)
		}
	})
	t.Run("products keep NaN", func(t *testing.T) {
		lib, info, err := tblas.Open(tblas.Config{Library: tblas.Auto})
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []float32{nan, float32(math.Inf(1))} {
			productsKeep(t, tblas.InGo, &Pass{Training: true}, bad)
			productsKeep(t, info.Name, &Pass{Training: true, BLAS: lib}, bad)
		}
	})
}

// productsKeep checks that bad shows in what is made of it, even where it is multiplied with 0.
func productsKeep(t *testing.T, library string, pass *Pass, bad float32) {
	t.Helper()
	finite := func(v float32) bool { return !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) }
	step := func(x, w, dy float32) (y, dw float32) {
		l := newLinear(2, 1, true)
		l.weight.Value[0], l.weight.Value[1] = 1, w
		y = l.Forward(pass, Matrix{1, 2, []float32{1, x}}).Data[0]
		l.Backward(pass, Matrix{1, 1, []float32{dy}}, true)
		return y, l.weight.Grad[1]
	}
	if y, _ := step(bad, 0, 1); finite(y) {
		t.Errorf("%s: an input of %v with a weight of 0 gives %v", library, bad, y)
	}
	if y, _ := step(0, bad, 1); finite(y) {
		t.Errorf("%s: a weight of %v with an input of 0 gives %v", library, bad, y)
	}
	if _, dw := step(0, 1, bad); finite(dw) {
		t.Errorf("%s: a gradient of %v with an input of 0 gives %v", library, bad, dw)
	}
	image := Image{1, 3, 3}
	x := NewMatrix(1, image.Size())
	x.Data[4] = bad
	if y := NewConv2d(image, Conv2dConfig{Out: 1, Kernel: 3}, source()).Forward(pass, x).Data[0]; finite(y) {
		t.Errorf("%s: a convolution of %v gives %v", library, bad, y)
	}
}
