package vec

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// implementations returns every set that can run on this CPU. Race builds test assembly, too, though they do not use it.
func implementations() []*kernelSet { return append([]*kernelSet{&plain}, assembly()...) }

// special holds the values at which wrong loops are most likely to differ.
var special = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 0.5, float32(math.NaN()), float32(-math.NaN()),
	float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32, -math.MaxFloat32,
	math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 0x1p-126, -0x1p-126, 0x1.fffffcp-127,
	65504, 65519.996, 65520, 0x1p-14, 0x1p-24, 0x1p-25, 0x1.000002p-25, 88.7, -87.3, -104, 1e-20, -1e20,
}

func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// normals returns n numbers of the standard normal distribution.
func normals(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// anything returns n numbers: some special, some of random bits, and most of the normal distribution.
func anything(rng *rand.Rand, n int) []float32 {
	x := normals(rng, n)
	for i := range x {
		switch rng.IntN(8) {
		case 0:
			x[i] = special[rng.IntN(len(special))]
		case 1:
			x[i] = math.Float32frombits(rng.Uint32())
		}
	}
	return x
}

// zeros returns n zeros of random sign.
func zeros(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = math.Float32frombits(uint32(rng.IntN(2)) << 31)
	}
	return x
}

// guarded returns n elements, at an address that is only a multiple of 4. The elements around them are mark. changed reports
// whether one of those was overwritten.
func guarded[T comparable](rng *rand.Rand, n int, mark T) (x []T, changed func() bool) {
	const margin = 32
	from := margin + rng.IntN(16)
	whole := make([]T, from+n+margin)
	for i := range whole {
		whole[i] = mark
	}
	return whole[from : from+n : from+n], func() bool {
		for i, v := range whole {
			if (i < from || i >= from+n) && v != mark {
				return true
			}
		}
		return false
	}
}

// same reports whether a and b have the same bits, or both are NaN.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// within reports whether got is within tolerance of want, or both are NaN, or both the same infinity.
func within(got, want, tolerance float64) bool {
	return got == want || math.IsNaN(got) && math.IsNaN(want) || math.Abs(got-want) <= tolerance
}

// elementwise lists the exported functions whose operands have the same length.
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
	"Scale":           func(a, b, _ []float32) { copy(a, b); Scale(a, 0.5) },
	"ExpSum elements": func(a, b, _ []float32) { ExpSum(a, b, 0) },
}

// rowwise lists the other exported functions that check lengths.
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

// TestLongArraysGiveWhatTheirPartsGive checks that arrays longer than those that kernels get at once have the results of their parts.
func TestLongArraysGiveWhatTheirPartsGive(t *testing.T) {
	rng := newRand(t)
	const n, cut = piece + 1000, piece - 77
	x := [3][]float32{normals(rng, n), normals(rng, n), normals(rng, n)}
	for i := range x[2] {
		x[2][i] *= x[2][i] // not negative, since Adam takes its square root
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
	// A float64 sum loses some 1e-16 of the n magnitudes around 1.
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

func TestKernelsAllocateNothing(t *testing.T) {
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
	for name, f := range all {
		if n := testing.AllocsPerRun(100, func() { f(a, b, c) }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

// operands holds the arrays that a kernel may read and write, and its numbers.
type operands struct {
	a, b, c, d []float32
	p, q       float32
	yes        bool
}

// exact lists the kernels that give the same bits in every set. alias reports whether operands may be the same array.
var exact = []struct {
	name  string
	alias bool
	run   func(s *kernelSet, o operands)
}{
	{"add", true, func(s *kernelSet, o operands) { s.add(o.a, o.b) }},
	{"addTo", true, func(s *kernelSet, o operands) { s.addTo(o.a, o.b, o.c) }},
	{"mul", true, func(s *kernelSet, o operands) { s.mul(o.a, o.b, o.c) }},
	{"scale", true, func(s *kernelSet, o operands) { s.scale(o.a, o.p) }},
	{"axpy", true, func(s *kernelSet, o operands) { s.axpy(o.a, o.p, o.b) }},
	{"relu", true, func(s *kernelSet, o operands) { s.relu(o.a, o.b) }},
	{"reluGrad", true, func(s *kernelSet, o operands) { s.reluGrad(o.a, o.b, o.c) }},
	{"tanhGrad", true, func(s *kernelSet, o operands) { s.tanhGrad(o.a, o.b, o.c) }},
	{"softmaxGrad", true, func(s *kernelSet, o operands) { s.softmaxGrad(o.a, o.b, o.c, o.p) }},
	{"sgd", false, func(s *kernelSet, o operands) { s.sgd(o.a, o.b, o.p, o.q) }},
	{"sgdMomentum", false, func(s *kernelSet, o operands) {
		step := newSGDStep(0.1, o.p, 0.25, o.q, o.yes)
		s.sgdMomentum(o.a, o.b, o.c, step)
	}},
	{"adam", false, func(s *kernelSet, o operands) {
		step := AdamStep{Shrink: 0.999, Decay: o.q, Beta1: 0.9, Beta2: 0.999, Rest1: 0.1, Rest2: 0.001,
			StepSize: o.p, Root: 0.0316, Eps: 1e-8}
		s.adam(o.a, o.b, o.c, o.d, step)
	}},
	{"add4", false, func(s *kernelSet, o operands) { // adds four rows of b to the beginning of a
		n := len(o.a) / 5
		s.add4(o.a[:n], o.b[:4*n])
	}},
}

func TestKernelsAreTheirDefinitions(t *testing.T) {
	lengths := []int{127, 128, 1001, 4099}
	for n := range 71 {
		lengths = append(lengths, n)
	}
	for _, s := range implementations() {
		for _, k := range exact {
			t.Run(s.name+"/"+k.name, func(t *testing.T) {
				t.Parallel()
				rng := newRand(t)
				for _, n := range lengths {
					o := operands{a: anything(rng, n), b: anything(rng, n), c: anything(rng, n), d: anything(rng, n)}
					for layout := range 4 {
						if layout > 0 && !k.alias {
							break
						}
						o.p, o.q, o.yes = float32(rng.NormFloat64()), float32(rng.IntN(2))*0.01, rng.IntN(2) == 0
						compare(t, rng, s, k.run, o, layout)
					}
				}
				// The sums and differences of zeros of both signs depend on the order.
				o := operands{a: zeros(rng, 100), b: zeros(rng, 100), c: zeros(rng, 100), d: zeros(rng, 100), p: 0.5}
				compare(t, rng, s, k.run, o, 0)
			})
		}
	}
}

// compare runs a kernel of s and the plain one on copies of o. It checks that all arrays are the same and that nothing was
// written around them. The bits of layout say which of b (1) and c (2) are the same array as a.
func compare(t *testing.T, rng *rand.Rand, s *kernelSet, run func(*kernelSet, operands), o operands, layout int) {
	t.Helper()
	const mark = 12345
	copied := func() ([]func() bool, operands) {
		var guards []func() bool
		clone := func(x []float32) []float32 {
			y, changed := guarded[float32](rng, len(x), mark)
			copy(y, x)
			guards = append(guards, changed)
			return y
		}
		mine := operands{clone(o.a), clone(o.b), clone(o.c), clone(o.d), o.p, o.q, o.yes}
		if layout&1 != 0 {
			mine.b = mine.a
		}
		if layout&2 != 0 {
			mine.c = mine.a
		}
		return guards, mine
	}
	_, want := copied()
	guards, got := copied()
	run(&plain, want)
	run(s, got)
	for _, changed := range guards {
		if changed() {
			t.Fatalf("%d elements, layout %d: memory around an operand was written", len(o.a), layout)
		}
	}
	pairs := [][2][]float32{{got.a, want.a}, {got.b, want.b}, {got.c, want.c}, {got.d, want.d}}
	for j, pair := range pairs {
		for i := range pair[0] {
			if !same(pair[0][i], pair[1][i]) {
				t.Fatalf("%d elements, layout %d, operand %d[%d]: %v (%#x), want %v (%#x)", len(o.a), layout, j, i,
					pair[0][i], math.Float32bits(pair[0][i]), pair[1][i], math.Float32bits(pair[1][i]))
			}
		}
	}
}

func FuzzExactKernels(f *testing.F) {
	f.Add([]byte("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"), float32(0.5), float32(0), true)
	f.Add(make([]byte, 600), float32(math.Inf(1)), float32(-1e-40), false)
	f.Fuzz(func(t *testing.T, data []byte, p, q float32, yes bool) {
		n := len(data) / 16
		var arrays [4][]float32
		for j := range arrays {
			arrays[j] = make([]float32, n)
			for i := range n {
				arrays[j][i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*(j*n+i):]))
			}
		}
		rng := rand.New(rand.NewPCG(1, 1)) // only addresses depend on it
		for _, s := range implementations() {
			for _, k := range exact {
				compare(t, rng, s, k.run, operands{arrays[0], arrays[1], arrays[2], arrays[3], p, q, yes}, 0)
			}
		}
	})
}

// byElement lists the kernels whose result in each element depends only on the operands' elements at the same place.
var byElement = func() map[string]func(s *kernelSet, o operands) {
	all := map[string]func(s *kernelSet, o operands){
		"gelu":      func(s *kernelSet, o operands) { s.gelu(o.a, o.b) },
		"geluGrad":  func(s *kernelSet, o operands) { s.geluGrad(o.a, o.b, o.c) },
		"tanh":      func(s *kernelSet, o operands) { s.tanh(o.a, o.b) },
		"expSum":    func(s *kernelSet, o operands) { s.expSum(o.a, o.b, 3) },
		"normalize": func(s *kernelSet, o operands) { s.normalize(o.a, o.b, o.c, o.d, o.p, 1.3) },
		"normalizeSums": func(s *kernelSet, o operands) {
			s.normalizeSums(o.a, o.b, o.c, o.d, o.d, o.p, 1.3)
		},
		"normalizeGrad": func(s *kernelSet, o operands) { s.normalizeGrad(o.a, o.b, o.c, o.d, o.p, 1.3, 0.2, 0.1) },
	}
	for _, k := range exact {
		if k.name != "add4" { // add4's rows follow one another in the same array
			all[k.name] = k.run
		}
	}
	return all
}()

// part returns copies of the elements from low to high of all arrays, at other addresses.
func (o operands) part(rng *rand.Rand, low, high int) operands {
	elsewhere := func(x []float32) []float32 {
		y, _ := guarded[float32](rng, high-low, 7)
		copy(y, x[low:high])
		return y
	}
	o.a, o.b, o.c, o.d = elsewhere(o.a), elsewhere(o.b), elsewhere(o.c), elsewhere(o.d)
	return o
}

// TestArraysMayBeCutAnywhere checks that an array computed at once has the bits of one computed in parts, cut at any place and
// at any address. Runs with ZeRO, other buckets or other shards rely on this.
func TestArraysMayBeCutAnywhere(t *testing.T) {
	for _, s := range available(t) {
		for name, run := range byElement {
			t.Run(s.name+"/"+name, func(t *testing.T) {
				rng := newRand(t)
				for round := range 200 {
					n := 1 + rng.IntN(100)
					all := operands{a: anything(rng, n), b: anything(rng, n), c: anything(rng, n), d: anything(rng, n),
						p: float32(rng.NormFloat64()), q: float32(round%2) * 0.01, yes: round%3 == 0}
					if name == "expSum" {
						for i := range all.b {
							all.b[i] = min(all.b[i], 3) // the kernel's argument top, 3, must not be below an element
						}
					}
					whole := all.part(rng, 0, n)
					run(s, whole)
					for low := 0; low < n; {
						high := low + 1 + rng.IntN(n-low)
						part := all.part(rng, low, high)
						run(s, part)
						for j, pair := range [][2][]float32{{part.a, whole.a}, {part.b, whole.b}, {part.c, whole.c}, {part.d, whole.d}} {
							for i, v := range pair[0] {
								if want := pair[1][low+i]; !same(v, want) {
									t.Fatalf("operand %d, element %d of %d: %v in the part from %d to %d, %v in the whole", j,
										low+i, n, v, low, high, want)
								}
							}
						}
						low = high
					}
				}
			})
		}
	}
}

// reductions lists the kernels that reduce an array of at least 1 element to numbers. The result may depend on where an array is cut.
var reductions = map[string]func(s *kernelSet, o operands) [2]float64{
	"sum":     func(s *kernelSet, o operands) [2]float64 { return [2]float64{s.sum(o.a)} },
	"dot":     func(s *kernelSet, o operands) [2]float64 { return [2]float64{s.dot(o.a, o.b)} },
	"max":     func(s *kernelSet, o operands) [2]float64 { return [2]float64{float64(s.max(o.a))} },
	"expSum":  func(s *kernelSet, o operands) [2]float64 { return [2]float64{s.expSum(o.b, o.a, 10)} },
	"moments": func(s *kernelSet, o operands) [2]float64 { a, b := s.moments(o.a); return [2]float64{a, b} },
	"normalizeSums": func(s *kernelSet, o operands) [2]float64 {
		a, b := s.normalizeSums(o.a, o.b, o.c, o.d, o.d, 0.1, 1.3)
		return [2]float64{a, b}
	},
}

func TestReductionsDoNotDependOnAddresses(t *testing.T) {
	for _, s := range available(t) {
		for name, run := range reductions {
			t.Run(s.name+"/"+name, func(t *testing.T) {
				rng := newRand(t)
				for range 300 {
					n := 1 + rng.IntN(100)
					o := operands{a: normals(rng, n), b: normals(rng, n), c: normals(rng, n), d: normals(rng, n)}
					here, there := o.part(rng, 0, n), o.part(rng, 0, n)
					if a, b := run(s, here), run(s, there); a != b {
						t.Fatalf("%d elements: %v here, %v there", n, a, b)
					}
				}
			})
		}
	}
}

// available returns implementations. For each set that this machine cannot run it adds a skipped subtest.
func available(t *testing.T) []*kernelSet {
	t.Helper()
	sets := implementations()
	for _, name := range []string{"avx2", "avx512"} {
		if !slices.ContainsFunc(sets, func(s *kernelSet) bool { return s.name == name }) {
			t.Run(name, func(t *testing.T) { t.Skipf("no %s here: of another CPU, or left out by the tag noasm", name) })
		}
	}
	return sets
}

// with runs f as a subtest for every set. The exported functions use the set meanwhile, so such tests must not be parallel.
func with(t *testing.T, f func(t *testing.T)) {
	chosen := best
	t.Cleanup(func() { best = chosen })
	for _, s := range implementations() {
		best = *s
		t.Run(s.name, f)
	}
}
