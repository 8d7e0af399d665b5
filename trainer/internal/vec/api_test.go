package vec

import (
	"testing"
)

// elementwise are exported functions whose operands are as long as each other.
var elementwise = map[string]func(a, b, c []float32){
	"Add":             func(a, b, _ []float32) { Add(a, b) },
	"AddTo":           AddTo,
	"Mul":             Mul,
	"Axpy":            func(a, b, _ []float32) { Axpy(a, 0.5, b) },
	"ReLU":            func(a, b, _ []float32) { ReLU(a, b) },
	"ReLUGrad":        ReLUGrad,
	"GELU":            func(a, b, _ []float32) { GELU(a, b) },
	"GELUGrad":        GELUGrad,
	"Tanh":            func(a, b, _ []float32) { Tanh(a, b) },
	"TanhGrad":        TanhGrad,
	"SGD":             func(a, b, _ []float32) { SGD(a, b, nil, 0.1, 0, 0, 0.01, false) },
	"SGD/momentum":    func(a, b, c []float32) { SGD(a, b, c, 0.1, 0.9, 1, 0.01, true) },
	"Adam":            func(a, b, c []float32) { Adam(a, b, c, c, AdamStep{Shrink: 1, Root: 1, Eps: 1}) },
	"RoundBFloat16":   func(a, b, _ []float32) { RoundBFloat16(a, b) },
	"RoundFloat16":    func(a, b, _ []float32) { RoundFloat16(a, b) },
	"ToFloat16":       func(a, b, _ []float32) { h := make([]uint16, len(a)); ToFloat16(h, b); FromFloat16(a, h) },
	"ToBFloat16":      func(a, b, _ []float32) { h := make([]uint16, len(a)); ToBFloat16(h, b); FromBFloat16(a, h) },
	"Scale":           func(a, b, _ []float32) { copy(a, b); Scale(a, 0.5) },
	"ExpSum elements": func(a, b, _ []float32) { ExpSum(a, b, 0) },
}

// rowwise are the others that look at lengths.
var rowwise = map[string]func(a, b, c []float32){
	"Dot":           func(a, b, _ []float32) { Dot(a, b) },
	"Softmax":       func(a, b, _ []float32) { Softmax(a, b) },
	"SoftmaxGrad":   SoftmaxGrad,
	"Normalize":     func(a, b, c []float32) { Normalize(a, b, c, c, 1e-5) },
	"NormalizeGrad": func(a, b, c []float32) { NormalizeGrad(a, c, c, b, b, c, 0, 1) },
}

func TestWrongLengthsPanic(t *testing.T) {
	long, short := make([]float32, 24), make([]float32, 23)
	panics := func(f func()) (did bool) {
		defer func() { did = recover() != nil }()
		f()
		return false
	}
	for _, functions := range []map[string]func(a, b, c []float32){elementwise, rowwise} {
		for name, f := range functions {
			if name != "Scale" && !panics(func() { f(long, short, short) }) {
				t.Errorf("%s takes operands of different length", name)
			}
		}
	}
	for name, f := range map[string]func(){
		"SumRows":    func() { SumRows(short, long) },
		"no columns": func() { SumRows(nil, long) },
		"empty row":  func() { Normalize(nil, nil, nil, nil, 1) },
		"no gain":    func() { Normalize(long, long, nil, long, 1) },
		"no bias":    func() { Normalize(long, long, long, nil, 1) },
	} {
		if !panics(f) {
			t.Errorf("%s: takes a matrix that is not made of rows", name)
		}
	}
}

// TestPieces holds that arrays longer than what kernels get at once give what their parts give.
func TestPieces(t *testing.T) {
	rng := newRand(t)
	const n, cut = piece + 1000, piece - 77
	x := [3][]float32{normals(rng, n), normals(rng, n), normals(rng, n)}
	for i := range x[2] {
		x[2][i] *= x[2][i] // Adam takes its root
	}
	clone := func() (c [3][]float32) {
		for i := range x {
			c[i] = append([]float32(nil), x[i]...)
		}
		return c
	}
	for name, f := range elementwise {
		whole, parts := clone(), clone()
		f(whole[0], whole[1], whole[2])
		f(parts[0][:cut], parts[1][:cut], parts[2][:cut])
		f(parts[0][cut:], parts[1][cut:], parts[2][cut:])
		for j := range whole {
			for i := range whole[j] {
				if !same(whole[j][i], parts[j][i]) {
					t.Fatalf("%s: element %d is %v, of parts %v", name, i, whole[j][i], parts[j][i])
				}
			}
		}
	}
	// float64 sums lose some 1e-16 of the n magnitudes around 1
	if got, want := Sum(x[2]), sum(x[2]); !within(got, want, 1e-9*want) {
		t.Errorf("Sum %v, want %v", got, want)
	}
	if got, want := SumSquares(x[0]), dot(x[0], x[0]); !within(got, want, 1e-9*want) {
		t.Errorf("SumSquares %v, want %v", got, want)
	}
	softened := clone()
	Softmax(softened[0], x[0])
	if got := Sum(softened[0]); !within(got, 1, 1e-6) {
		t.Errorf("softmax sums to %v", got)
	}
	SoftmaxGrad(softened[1], softened[0], x[1])
	if got := Sum(softened[1]); !within(got, 0, 1e-6) { // the gradient of a constant sum
		t.Errorf("gradients of softmax sum to %v", got)
	}
	for _, at := range []int{0, piece, n - 1} {
		old := x[0][at]
		if x[0][at] = 100; Max(x[0]) != 100 {
			t.Errorf("Max does not see element %d", at)
		}
		if x[0][at] /= 0 * x[0][at]; Finite(x[0]) {
			t.Errorf("Finite does not see element %d", at)
		}
		x[0][at] = old
	}
	if !Finite(x[0]) {
		t.Error("finite numbers are not finite")
	}
}

func TestNoAllocations(t *testing.T) {
	a, b, c := make([]float32, 256), make([]float32, 256), make([]float32, 256)
	row := make([]float32, 16)
	all := map[string]func(a, b, c []float32){
		"SumRows": func(a, _, _ []float32) { SumRows(row, a) },
		"Sum":     func(a, _, _ []float32) { Sum(a) },
		"Max":     func(a, _, _ []float32) { Max(a) },
		"Finite":  func(a, _, _ []float32) { Finite(a) },
	}
	for _, functions := range []map[string]func(a, b, c []float32){elementwise, rowwise} {
		for name, f := range functions {
			all[name] = f
		}
	}
	delete(all, "ToFloat16") // the test's own halves
	delete(all, "ToBFloat16")
	for name, f := range all {
		if n := testing.AllocsPerRun(100, func() { f(a, b, c) }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
