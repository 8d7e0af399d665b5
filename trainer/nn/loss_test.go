package nn

import (
	"math"
	"testing"
)

// The loss of a batch without rows is 0, not NaN. A rank without rows takes part in a step with such a batch.
func TestLossesWithoutRowsAreZero(t *testing.T) {
	if loss, dy := new(CrossEntropy).Loss(NewMatrix(0, 3), nil); loss != 0 || dy.Rows != 0 || dy.Cols != 3 {
		t.Errorf("cross entropy is %g with gradient %v, want 0 and 0 x 3", loss, dy)
	}
	if loss, dy := new(MSE).Loss(NewMatrix(0, 3), NewMatrix(0, 3)); loss != 0 || dy.Rows != 0 || dy.Cols != 3 {
		t.Errorf("mean squared error is %g with gradient %v, want 0 and 0 x 3", loss, dy)
	}
}

// The cross entropy of equal logits of 1,000 classes is log 1000, and the gradients of a row add up to 0.
func TestCrossEntropyOfEqualLogitsIsByHand(t *testing.T) {
	logits := NewMatrix(2, 1000)
	for i := range logits.Data {
		logits.Data[i] = -3
	}
	loss, grad := new(CrossEntropy).Loss(logits, []int{0, 999})
	// Each exponential is 1 within one unit in the last place, 6e-8.
	if math.Abs(loss-math.Log(1000)) > 1e-7 {
		t.Errorf("loss is %.9g, want %.9g", loss, math.Log(1000))
	}
	for i := range 2 {
		var sum float64
		for _, g := range grad.Row(i) {
			sum += float64(g)
		}
		// The sum has 1,000 elements of 5e-4, each rounded to 24 bits.
		if math.Abs(sum) > 3e-8 {
			t.Errorf("the gradients of row %d add up to %g, want 0", i, sum)
		}
	}
}

func TestLossGradientsAreDifferences(t *testing.T) {
	r := source()
	t.Run("mse", func(t *testing.T) {
		y, target := randomMatrix(r, 3, 4), randomMatrix(r, 3, 4)
		var loss MSE
		_, grad := loss.Loss(y, target)
		checkGradient(t, "y", y.Data, append([]float32(nil), grad.Data...), func() float64 {
			v, _ := loss.Loss(y, target)
			return v
		})
	})
	t.Run("cross entropy", func(t *testing.T) {
		logits, labels := randomMatrix(r, 3, 4), []int{2, 0, 3}
		var loss CrossEntropy
		_, grad := loss.Loss(logits, labels)
		checkGradient(t, "logits", logits.Data, append([]float32(nil), grad.Data...), func() float64 {
			v, _ := loss.Loss(logits, labels)
			return v
		})
	})
}
