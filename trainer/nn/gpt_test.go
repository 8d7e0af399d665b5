package nn

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/blas"

	tblas "ddpbatch/trainer/blas"
)

var nan32 = float32(math.NaN())

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return
}

// checkModule compares the gradients of a module's input and parameters with central differences.
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

func TestTransformerGradientsAreDifferences(t *testing.T) {
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

// gptBench is the GPT of the benchmarks.
var gptBench = GPTConfig{Layers: 4, Heads: 4, Width: 128, Context: 128, Symbols: 256}

func TestGPTHasPyTorchsParameters(t *testing.T) {
	count := 0
	var names []string
	for _, p := range NewGPT(gptBench, source()).Params() {
		count += len(p.Value)
		if !strings.HasPrefix(p.Name, "blocks.") || strings.HasPrefix(p.Name, "blocks.3.") {
			names = append(names, p.Name)
		}
	}
	if count != 875_264 {
		t.Errorf("%d parameters, want 875,264", count)
	}
	want := []string{
		"embed.token.weight", "embed.position.weight",
		"blocks.3.ln1.weight", "blocks.3.ln1.bias", "blocks.3.attn.qkv.weight", "blocks.3.attn.qkv.bias",
		"blocks.3.attn.proj.weight", "blocks.3.attn.proj.bias", "blocks.3.ln2.weight", "blocks.3.ln2.bias",
		"blocks.3.mlp.fc.weight", "blocks.3.mlp.fc.bias", "blocks.3.mlp.proj.weight", "blocks.3.mlp.proj.bias",
		"norm.weight", "norm.bias", "head.weight",
	}
	if !slices.Equal(names, want) {
		t.Errorf("names are %q, want %q", names, want)
	}
}

// Each gradient is reported as done once, from the last layer to the first, and nothing is added to it later. A gradient is sent as soon as
// it is done.
func TestGPTGradientsAreDoneInReverse(t *testing.T) {
	cfg := GPTConfig{Layers: 2, Heads: 2, Width: 4, Context: 3, Symbols: 5}
	model := NewGPT(cfg, source())
	var done []*Param
	grads := map[*Param][]float32{}
	pass := Pass{Training: true, Ready: func(p *Param) { done, grads[p] = append(done, p), slices.Clone(p.Grad) }}
	y := model.Forward(&pass, symbols(cfg, 2))
	model.Backward(&pass, randomMatrix(source(), y.Rows, y.Cols), false)
	layer := func(p *Param) string { return p.Name[:strings.LastIndexByte(p.Name, '.')] }
	var got, want []string
	for _, p := range done {
		got = append(got, layer(p))
	}
	for _, p := range slices.Backward(model.Params()) {
		want = append(want, layer(p))
	}
	// The two embeddings count as one layer. In other layers weight and bias may come in either order.
	if !slices.Equal(got, want) {
		t.Errorf("gradients were done in the order %q, want %q", got, want)
	}
	for _, p := range model.Params() {
		if !slices.Equal(p.Grad, grads[p]) {
			t.Errorf("%s was done before its gradient was", p.Name)
		}
	}
	slices.SortFunc(done, func(a, b *Param) int { return strings.Compare(a.Name, b.Name) })
	if n := len(slices.Compact(done)); n != len(model.Params()) {
		t.Errorf("%d parameters were done, want all %d", n, len(model.Params()))
	}
}

// The gradients of a whole GPT are central differences. The modules share memory for gradients, and this test shows whether they overwrite
// memory that is still in use. The first parameters get their gradients last, so it is enough to check them and the attention in the first
// block.
func TestGPTGradientsAreDifferences(t *testing.T) {
	cfg := GPTConfig{Layers: 2, Heads: 2, Width: 4, Context: 3, Symbols: 5}
	r := source()
	model := NewGPT(cfg, r)
	for _, p := range model.Params() {
		copy(p.Value, randomMatrix(r, 1, len(p.Value)).Data) // far from the symmetric initial values
	}
	pass := Pass{Training: true}
	x, labels := symbols(cfg, 2), []int{0, 1, 2, 3, 4, 0}
	var loss CrossEntropy
	f := func() float64 {
		v, _ := loss.Loss(model.Forward(&pass, x), labels)
		return v
	}
	_, dy := loss.Loss(model.Forward(&pass, x), labels)
	model.Backward(&pass, dy, false)
	for _, p := range model.Params() {
		checkGradient(t, p.Name, p.Value, p.Grad, f)
	}
}

// Equal steps have the same bits even with a batch of another length between them, although gradients share memory. Steps do not allocate.
func TestGPTStepsAreEqualAndAllocateNothing(t *testing.T) {
	cfg := GPTConfig{Layers: 2, Heads: 2, Width: 8, Context: 9, Symbols: 11, Dropout: 0.1}
	model := NewGPT(cfg, source())
	pass := Pass{Training: true, Seed: 7}
	var loss CrossEntropy
	x, labels := symbols(cfg, 3), make([]int, 27)
	step := func(rows int) {
		ZeroGrad(model.Params())
		in := Matrix{Rows: rows, Cols: cfg.Context, Data: x.Data[:rows*cfg.Context]}
		_, dy := loss.Loss(model.Forward(&pass, in), labels[:rows*cfg.Context])
		model.Backward(&pass, dy, false)
	}
	grads := func() (all []float32) {
		for _, p := range model.Params() {
			all = append(all, p.Grad...)
		}
		return all
	}
	step(2)
	before := grads()
	step(3)
	step(0)
	step(2)
	if !slices.Equal(grads(), before) {
		t.Error("the same step gives other gradients after a larger one")
	}
	if n := testing.AllocsPerRun(100, func() { step(3); step(1) }); n != 0 {
		t.Errorf("a step allocates %v times, want none", n)
	}
}

// A GPT learns to look back. All symbols of the text are equally frequent, so a model that only counts them reaches a loss of log 8. A
// model that looks back can predict all but the first few symbols of each sequence.
func TestGPTLearnsMoreThanFrequencies(t *testing.T) {
	cfg := GPTConfig{Layers: 2, Heads: 2, Width: 16, Context: 12, Symbols: 8}
	r := source()
	model := NewGPT(cfg, r)
	pass := Pass{Training: true}
	var loss CrossEntropy
	x, labels := NewMatrix(16, cfg.Context), make([]int, 16*cfg.Context)
	m, v := map[*Param][]float64{}, map[*Param][]float64{}
	for _, p := range model.Params() {
		m[p], v[p] = make([]float64, len(p.Value)), make([]float64, len(p.Value))
	}
	var value float64
	for step := 1; step <= 200; step++ {
		for i := range x.Rows {
			// The next symbol is the sum of the last one and the sequence's own stride.
			at, stride := r.IntN(8), 1+2*r.IntN(2)
			for j := range cfg.Context {
				x.Row(i)[j] = float32(at)
				at = (at + stride) % 8
				labels[i*cfg.Context+j] = at
			}
		}
		ZeroGrad(model.Params())
		var dy Matrix
		value, dy = loss.Loss(model.Forward(&pass, x), labels)
		model.Backward(&pass, dy, false)
		for _, p := range model.Params() { // Adam
			for i, g := range p.Grad {
				g := float64(g)
				m[p][i] = 0.9*m[p][i] + 0.1*g
				v[p][i] = 0.99*v[p][i] + 0.01*g*g
				up := m[p][i] / (1 - math.Pow(0.9, float64(step)))
				down := math.Sqrt(v[p][i] / (1 - math.Pow(0.99, float64(step))))
				p.Value[i] -= float32(0.01 * up / (down + 1e-8))
			}
		}
	}
	// The first symbol does not show which of two strides its sequence has, so no model can reach less than log 2 there.
	if floor := math.Ln2 / float64(cfg.Context); value < 0.5*floor || value > 0.5 {
		t.Errorf("loss is %g after 200 steps, want between %.3g and 0.5; frequencies alone give %.3g", value, floor, math.Log(8))
	}
}

// symbols returns sequences of random symbols for a model.
func symbols(cfg GPTConfig, sequences int) Matrix {
	x := NewMatrix(sequences, cfg.Context)
	r := source()
	for i := range x.Data {
		x.Data[i] = float32(r.IntN(cfg.Symbols))
	}
	return x
}

func TestEmbeddingAddsTokenAndPosition(t *testing.T) {
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

// clocked is a library that adds up the time spent in its matrix products.
type clocked struct {
	tblas.Library
	spent time.Duration
}

func (c *clocked) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32,
	out []float32, ldc int) {
	start := time.Now()
	c.Library.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, out, ldc)
	c.spent += time.Since(start)
}

// BenchmarkGPT runs Forward, the loss and Backward of the benchmarks' GPT, 8 sequences at a time, with the library that Auto finds. The
// matrix products take 5.7 GFLOP.
func BenchmarkGPT(b *testing.B) {
	library, info, err := tblas.Open(tblas.Config{Library: tblas.Auto, Threads: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Log(info)
	lib := &clocked{Library: library}
	pass := Pass{Training: true, BLAS: lib}
	model := NewGPT(gptBench, source())
	var loss CrossEntropy
	x, labels := symbols(gptBench, 8), make([]int, 8*gptBench.Context)
	step := func() {
		ZeroGrad(model.Params())
		_, dy := loss.Loss(model.Forward(&pass, x), labels)
		model.Backward(&pass, dy, false)
	}
	step()
	lib.spent = 0
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
	b.ReportMetric(8*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
	b.ReportMetric(100*lib.spent.Seconds()/b.Elapsed().Seconds(), "%products")
}
