package nn

import (
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"
)

func TestSequentialNamesParametersAsPyTorchDoes(t *testing.T) {
	r := source()
	model := NewSequential(NewLinear(4, 8, r), NewReLU(),
		NewSequential(NewLinear(8, 8, r), NewTanh()), NewLinear(8, 3, r))
	var names []string
	for _, p := range model.Params() {
		names = append(names, p.Name)
	}
	want := []string{"0.weight", "0.bias", "2.0.weight", "2.0.bias", "3.weight", "3.bias"}
	if !slices.Equal(names, want) {
		t.Errorf("names are %q, want %q", names, want)
	}
	if shape := model.Params()[0].Shape; !slices.Equal(shape, []int{8, 4}) {
		t.Errorf("the weight from 4 to 8 features has shape %v, want [8 4]", shape)
	}
}

// Product against the definition, over sizes below, at and above its tiles.
func TestAddProduct(t *testing.T) {
	var pass Pass
	r := source()
	for _, size := range [][3]int{{1, 1, 1}, {2, 3, 5}, {64, 192, 8}, {65, 193, 9}, {3, 2, 1030}, {130, 400, 3}} {
		m, n, depth := size[0], size[1], size[2]
		for _, ta := range []blas.Transpose{blas.NoTrans, blas.Trans} {
			for _, tb := range []blas.Transpose{blas.NoTrans, blas.Trans} {
				a, b := randomMatrix(r, m, depth), randomMatrix(r, depth, n)
				c := randomMatrix(r, m, n)
				want := NewMatrix(m, n)
				for i := range m {
					for j := range n {
						sum := float64(c.Row(i)[j])
						for k := range depth {
							sum += float64(a.Row(i)[k]) * float64(b.Row(k)[j])
						}
						want.Row(i)[j] = float32(sum)
					}
				}
				pass.Product(c, stored(a, ta), ta, stored(b, tb), tb, true)
				for i, v := range c.Data {
					// Up to 1,030 products below 1, each sum rounded to 24 bits.
					if math.Abs(float64(v-want.Data[i])) > 1e-4 {
						t.Fatalf("%v %c%c: element %d is %g, want %g", size, ta, tb, i, v, want.Data[i])
					}
				}
			}
		}
	}
}

// stored returns what op must be applied to to get m.
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
