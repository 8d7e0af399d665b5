package nn

import (
	"slices"
	"testing"
)

func TestEmbeddingByHand(t *testing.T) {
	e := NewEmbedding(3, 2, 1, source())
	copy(e.token.Value, []float32{10, 20, 30})
	copy(e.position.Value, []float32{1, 2})
	var done []string
	pass := Pass{Ready: func(p *Param) { done = append(done, p.Name) }}
	x := Matrix{Rows: 2, Cols: 2, Data: []float32{2, 0, 2, 2}}
	y := e.Forward(&pass, x)
	if want := []float32{31, 12, 31, 32}; y.Rows != 4 || y.Cols != 1 || !slices.Equal(y.Data, want) {
		t.Errorf("output is %v, want 4 x 1 of %v", y, want)
	}
	dx := e.Backward(&pass, Matrix{Rows: 4, Cols: 1, Data: []float32{1, 2, 4, 8}}, true)
	if want := []float32{2, 0, 13}; !slices.Equal(e.token.Grad, want) {
		t.Errorf("gradient of tokens is %v, want %v", e.token.Grad, want)
	}
	if want := []float32{5, 10}; !slices.Equal(e.position.Grad, want) {
		t.Errorf("gradient of positions is %v, want %v", e.position.Grad, want)
	}
	if dx.Rows != 2 || !slices.Equal(dx.Data, make([]float32, 4)) {
		t.Errorf("gradient of symbols is %v, want zeros", dx)
	}
	if want := []string{"position.weight", "token.weight"}; !slices.Equal(done, want) {
		t.Errorf("gradients were done in the order %q, want %q", done, want)
	}
}

func TestNewEmbeddingRefusesSymbols(t *testing.T) {
	e := NewEmbedding(3, 1, 2, source())
	for _, symbol := range []float32{-1, 3, nan32, -1e30, 1e30} {
		if !panics(func() { e.Forward(new(Pass), Matrix{Rows: 1, Cols: 1, Data: []float32{symbol}}) }) {
			t.Errorf("symbol %g is taken", symbol)
		}
	}
}
