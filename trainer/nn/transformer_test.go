package nn

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

var nan32 = float32(math.NaN())

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return
}

// checkModule compares the gradients of a module's input and parameters with differences.
func checkModule(t *testing.T, m Module, x Matrix) {
	t.Helper()
	var pass Pass
	y := m.Forward(&pass, x)
	dy := randomMatrix(source(), y.Rows, y.Cols)
	f := func() float64 {
		var sum float64
		for i, v := range m.Forward(&pass, x).Data {
			sum += float64(v) * float64(dy.Data[i])
		}
		return sum
	}
	dx := m.Backward(&pass, dy, true)
	checkGradient(t, "input", x.Data, slices.Clone(dx.Data), f)
	for _, p := range m.Params() {
		checkGradient(t, p.Name, p.Value, p.Grad, f)
	}
}

func TestTransformerGradients(t *testing.T) {
	r := source()
	t.Run("layer norm", func(t *testing.T) {
		l := NewLayerNorm(6)
		copy(l.weight.Value, randomMatrix(r, 1, 6).Data)
		copy(l.bias.Value, randomMatrix(r, 1, 6).Data)
		checkModule(t, l, randomMatrix(r, 3, 6))
	})
	t.Run("gelu", func(t *testing.T) { checkModule(t, NewGELU(), randomMatrix(r, 3, 7)) })
	t.Run("residual", func(t *testing.T) {
		for _, f := range []Module{
			NewSequential(NewLinear(5, 5, r), NewTanh()), NewSequential(NewTanh(), NewLinear(5, 5, r)),
			NewSequential(NewTanh(), new(gptScratch).linear(5, 5, false, 0.5, r)), NewLinear(5, 5, r),
		} {
			checkModule(t, NewResidual(f), randomMatrix(r, 3, 5))
		}
	})
	for _, c := range []struct{ width, heads, context, sequences int }{
		{4, 1, 1, 2}, {4, 2, 7, 2}, {8, 4, 3, 1}, {2, 1, attentionBlock + 3, 1},
	} {
		t.Run(fmt.Sprint("attention", c), func(t *testing.T) {
			checkModule(t, NewCausalAttention(c.width, c.heads, c.context), randomMatrix(r, c.sequences*c.context, 3*c.width))
		})
	}
}

// Mean and variance of each row are those of the parameters, whatever the scale of the input.
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
		// 100 elements near 1, whose inputs are rounded to 24 bits of 1000 before they are divided by 70; eps lowers the first variance by 1e-5/0.4.
		if math.Abs(sum/100) > 1e-5 || math.Abs(squares/100-variance) > 1e-4 {
			t.Errorf("row %d has mean %g and variance %g, want 0 and %g", i, sum/100, squares/100, variance)
		}
	}
}

// What comes later changes nothing before, to the last bit.
func TestAttentionIsCausal(t *testing.T) {
	const context = attentionBlock + 9
	r := source()
	a := NewCausalAttention(4, 2, context)
	x := randomMatrix(r, 2*context, 12)
	before := slices.Clone(a.Forward(new(Pass), x).Data)
	for _, place := range []int{0, 1, attentionBlock - 1, attentionBlock, context - 1} {
		changed := NewMatrix(x.Rows, x.Cols)
		copy(changed.Data, x.Data)
		for i := range changed.Row(place) {
			changed.Row(place)[i]++
		}
		after := a.Forward(new(Pass), changed).Data
		if !slices.Equal(after[:4*place], before[:4*place]) {
			t.Errorf("a change at %d is seen before it", place)
		}
		if slices.Equal(after[4*place:4*(place+1)], before[4*place:4*(place+1)]) {
			t.Errorf("a change at %d is not seen there", place)
		}
		if !slices.Equal(after[4*context:], before[4*context:]) {
			t.Errorf("a change at %d is seen in the next sequence", place)
		}
	}
}

// A context in a job file costs no memory before it is used.
func TestAttentionAllocatesWhenUsed(t *testing.T) {
	NewCausalAttention(1, 1, 1<<30) // a context's square is more than a slice can hold
}

func TestTransformerMisfitsPanic(t *testing.T) {
	r := source()
	pass := new(Pass)
	three := NewMatrix(3, 3)
	for name, f := range map[string]func(){
		"heads do not divide the width":   func() { NewCausalAttention(6, 4, 1) },
		"no context":                      func() { NewCausalAttention(6, 2, 0) },
		"attention's input too wide":      func() { NewCausalAttention(2, 1, 3).Forward(pass, three) },
		"a part of a sequence":            func() { NewCausalAttention(1, 1, 2).Forward(pass, three) },
		"attention's dy":                  func() { NewCausalAttention(1, 1, 3).Backward(pass, three, true) },
		"layer norm without columns":      func() { NewLayerNorm(0) },
		"layer norm's input":              func() { NewLayerNorm(2).Forward(pass, three) },
		"layer norm's dy":                 func() { NewLayerNorm(2).Backward(pass, three, true) },
		"gelu's dy":                       func() { NewGELU().Backward(pass, three, true) },
		"residual changes the shape":      func() { NewResidual(NewLinear(3, 2, r)).Forward(pass, three) },
		"its last layer changes it":       func() { NewResidual(NewSequential(NewTanh(), NewLinear(3, 2, r))).Forward(pass, three) },
		"embedding without symbols":       func() { NewEmbedding(0, 1, 1, r) },
		"embedding of another length":     func() { NewEmbedding(5, 2, 1, r).Forward(pass, three) },
		"embedding's dy":                  func() { NewEmbedding(5, 2, 1, r).Backward(pass, three, true) },
		"a GPT without blocks":            func() { NewGPT(GPTConfig{Heads: 1, Width: 1, Context: 1, Symbols: 1}, r) },
		"a GPT with heads that don't fit": func() { NewGPT(GPTConfig{Layers: 1, Heads: 2, Width: 3, Context: 1, Symbols: 1}, r) },
	} {
		if !panics(f) {
			t.Errorf("%s: no panic", name)
		}
	}
}
