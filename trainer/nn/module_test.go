package nn

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/mat"

	tblas "ddpbatch/trainer/blas"
)

// Product gives gonum's results for sizes below, at and above those of its tiles.
func TestAddProductIsGonums(t *testing.T) {
	var pass Pass
	r := source()
	for _, size := range [][3]int{{1, 1, 1}, {2, 3, 5}, {64, 192, 8}, {65, 193, 9}, {3, 2, 1030}, {130, 400, 3}} {
		m, n, depth := size[0], size[1], size[2]
		for _, ta := range []blas.Transpose{blas.NoTrans, blas.Trans} {
			for _, tb := range []blas.Transpose{blas.NoTrans, blas.Trans} {
				a, b := randomMatrix(r, m, depth), randomMatrix(r, depth, n)
				c := randomMatrix(r, m, n)
				var want mat.Dense
				want.Mul(dense(a), dense(b))
				want.Add(&want, dense(c))
				pass.Product(c, stored(a, ta), ta, stored(b, tb), tb, true)
				// An element is a sum of up to 1,030 products below 1, and each sum is rounded to 24 bits.
				if !mat.EqualApprox(dense(c), &want, 1e-4) {
					t.Fatalf("%v %c%c: the product is not gonum's", size, ta, tb)
				}
			}
		}
	}
}

// dense returns m as a matrix of gonum.
func dense(m Matrix) *mat.Dense {
	data := make([]float64, len(m.Data))
	for i, v := range m.Data {
		data[i] = float64(v)
	}
	return mat.NewDense(m.Rows, m.Cols, data)
}

// stored returns the matrix to which t must be applied to get m.
func stored(m Matrix, t blas.Transpose) Matrix {
	if t == blas.NoTrans {
		return m
	}
	s := NewMatrix(m.Cols, m.Rows)
	for i := range m.Rows {
		for j := range m.Cols {
			s.Row(j)[i] = m.Row(i)[j]
		}
	}
	return s
}

func TestBatchesOfOtherSizesReuseBuffers(t *testing.T) {
	var pass Pass
	r := source()
	model := NewSequential(NewLinear(6, 7, r), NewReLU(), NewLinear(7, 3, r))
	var loss CrossEntropy
	x := randomMatrix(r, 8, 6)
	labels := []int{0, 1, 2, 0, 1, 2, 0, 1}
	step := func(rows int) {
		in := Matrix{Rows: rows, Cols: 6, Data: x.Data[:rows*6]}
		_, dy := loss.Loss(model.Forward(&pass, in), labels[:rows])
		model.Backward(&pass, dy, true)
	}
	small := append([]float32(nil), model.Forward(&pass, Matrix{Rows: 3, Cols: 6, Data: x.Data[:18]}).Data...)
	step(8)
	if got := model.Forward(&pass, Matrix{Rows: 3, Cols: 6, Data: x.Data[:18]}).Data; !slices.Equal(got, small) {
		t.Errorf("three rows give %v after a larger batch, %v before", got, small)
	}
	if n := testing.AllocsPerRun(100, func() { step(8); step(3) }); n != 0 {
		t.Errorf("a step allocates %v times, want none", n)
	}
}

func TestMisfitsPanic(t *testing.T) {
	var pass Pass
	r := source()
	two := NewMatrix(2, 2)
	for name, f := range map[string]func(){
		"no outputs":      func() { NewLinear(3, 0, r) },
		"negative stride": func() { NewConv2d(Image{1, 3, 3}, Conv2dConfig{Out: 1, Kernel: 1, Stride: -2}, r) },
		"pool's stride":   func() { NewMaxPool2d(Image{1, 3, 3}, MaxPool2dConfig{Kernel: 1, Stride: -2}) },
		"wrong width":     func() { NewLinear(3, 1, r).Forward(&pass, two) },
		"wrong dy":        func() { NewReLU().Backward(&pass, two, true) },
		"label too large": func() { new(CrossEntropy).Loss(two, []int{0, 2}) },
		"negative label":  func() { new(CrossEntropy).Loss(two, []int{0, -1}) },
		"label missing":   func() { new(CrossEntropy).Loss(two, []int{0}) },
		"target's shape":  func() { new(MSE).Loss(two, NewMatrix(2, 3)) },
		"product": func() {
			pass.Product(NewMatrix(2, 2), two, blas.NoTrans, NewMatrix(3, 2), blas.NoTrans, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestDistinctGivesEachParameterOnce(t *testing.T) {
	a, b, c := newParam("a"), newParam("b"), newParam("c")
	list := []*Param{a, b, a, c, b, a}
	for range 2 { // the first loop must not affect the second
		if got := slices.Collect(Distinct(list)); !slices.Equal(got, []*Param{a, b, c}) {
			t.Errorf("%d are distinct, want a, b and c", len(got))
		}
	}
	for p := range Distinct(list) {
		if p == b {
			break
		}
		if p == c {
			t.Error("c comes after the loop has ended")
		}
	}
}

// Central differences with step h have an error of h² f”'/6, below 1e-4 for the functions here, and the error of
// rounding float32 outputs divided by h, below 5e-5. The sum of both is below tolerance.
const (
	h         = 1.0 / 64
	tolerance = 1e-3
)

func source() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// randomMatrix returns values that are farther than h from zero, where ReLU has its kink.
func randomMatrix(r *rand.Rand, rows, cols int) Matrix {
	m := NewMatrix(rows, cols)
	for i := range m.Data {
		v := 0.1 + 0.9*r.Float32()
		if r.IntN(2) == 0 {
			v = -v
		}
		m.Data[i] = v
	}
	return m
}

// checkGradient compares grad, element by element, with central differences of f in x.
func checkGradient(t *testing.T, what string, x, grad []float32, f func() float64) {
	t.Helper()
	for i, v := range x {
		x[i] = v + h
		up := f()
		x[i] = v - h
		down := f()
		x[i] = v
		want := (up - down) / (2 * h)
		if math.Abs(want-float64(grad[i])) > tolerance {
			t.Errorf("%s: derivative %d is %g, differences say %g", what, i, grad[i], want)
		}
	}
}

func TestModuleGradientsAreDifferences(t *testing.T) {
	modules := map[string]func(Source) Module{
		"linear": func(s Source) Module { return NewLinear(5, 3, s) },
		"relu":   func(Source) Module { return NewReLU() },
		"tanh":   func(Source) Module { return NewTanh() },
		"sequential": func(s Source) Module {
			return NewSequential(NewLinear(5, 4, s), NewTanh(), NewSequential(NewLinear(4, 2, s), NewTanh()))
		},
	}
	for name, build := range modules {
		t.Run(name, func(t *testing.T) {
			r := source()
			module := build(r)
			var pass Pass
			x := randomMatrix(r, 4, 5)
			y := module.Forward(&pass, x)
			// The differentiated scalar is the sum of y weighted by dy.
			dy := randomMatrix(r, y.Rows, y.Cols)
			f := func() float64 {
				var sum float64
				for i, v := range module.Forward(&pass, x).Data {
					sum += float64(v) * float64(dy.Data[i])
				}
				return sum
			}
			dx := module.Backward(&pass, dy, true)
			checkGradient(t, "input", x.Data, append([]float32(nil), dx.Data...), f)
			for _, p := range module.Params() {
				checkGradient(t, p.Name, p.Value, p.Grad, f)
			}
		})
	}
}

func TestBackwardAccumulatesAndSkipsTheInput(t *testing.T) {
	r := source()
	l := NewSequential(NewLinear(3, 2, r), NewReLU())
	var pass Pass
	x := randomMatrix(r, 4, 3)
	dy := randomMatrix(r, 4, 2)
	l.Forward(&pass, x)
	if dx := l.Backward(&pass, dy, false); dx.Data != nil {
		t.Errorf("Backward without the input's gradient returned %v", dx)
	}
	once := append([]float32(nil), l.Params()[0].Grad...)
	l.Forward(&pass, x)
	l.Backward(&pass, dy, true)
	for i, g := range l.Params()[0].Grad {
		// The second sum starts from the first one, so it is rounded differently.
		if math.Abs(float64(g-2*once[i])) > 1e-6 {
			t.Fatalf("gradient %d is %g after two calls, want twice %g", i, g, once[i])
		}
	}
	ZeroGrad(l.Params())
	for _, p := range l.Params() {
		if p.HasGrad {
			t.Errorf("%s has a gradient after ZeroGrad", p.Name)
		}
		for i, g := range p.Grad {
			if g != 0 {
				t.Fatalf("%s: gradient %d is %g after ZeroGrad", p.Name, i, g)
			}
		}
	}
}

func TestModulesAreRightAtNumericalEdges(t *testing.T) {
	var pass Pass
	nan := float32(math.NaN())
	t.Run("relu keeps NaN", func(t *testing.T) {
		y := NewReLU().Forward(&pass, Matrix{Rows: 1, Cols: 3, Data: []float32{nan, -1, 2}})
		if y.Data[0] == y.Data[0] || y.Data[1] != 0 || y.Data[2] != 2 {
			t.Errorf("relu(NaN, -1, 2) = %v", y.Data)
		}
	})
	t.Run("cross entropy of huge logits", func(t *testing.T) {
		// By hand: softmax is (1, 0, 0) to the last bit, so the loss of label 0 is 0 and that of label 1 is 2000.
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

// productsKeep checks that results computed from bad, NaN or an infinity, are not finite, even if bad is multiplied by 0.
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
