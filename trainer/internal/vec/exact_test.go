package vec

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// operands are the arrays and numbers that a kernel may take; those it writes are among the arrays.
type operands struct {
	a, b, c, d []float32
	p, q       float32
	yes        bool
}

// exact are the kernels that give the same bits in every set. alias says that operands may be the same array.
var exact = []struct {
	name  string
	alias bool
	run   func(s *set, o operands)
}{
	{"add", true, func(s *set, o operands) { s.add(o.a, o.b) }},
	{"addTo", true, func(s *set, o operands) { s.addTo(o.a, o.b, o.c) }},
	{"mul", true, func(s *set, o operands) { s.mul(o.a, o.b, o.c) }},
	{"scale", true, func(s *set, o operands) { s.scale(o.a, o.p) }},
	{"axpy", true, func(s *set, o operands) { s.axpy(o.a, o.p, o.b) }},
	{"relu", true, func(s *set, o operands) { s.relu(o.a, o.b) }},
	{"reluGrad", true, func(s *set, o operands) { s.reluGrad(o.a, o.b, o.c) }},
	{"tanhGrad", true, func(s *set, o operands) { s.tanhGrad(o.a, o.b, o.c) }},
	{"softmaxGrad", true, func(s *set, o operands) { s.softmaxGrad(o.a, o.b, o.c, o.p) }},
	{"roundBFloat16", true, func(s *set, o operands) { s.roundBFloat16(o.a, o.b) }},
	{"roundFloat16", true, func(s *set, o operands) { s.roundFloat16(o.a, o.b) }},
	{"sgd", false, func(s *set, o operands) { s.sgd(o.a, o.b, o.p, o.q) }},
	{"sgdMomentum", false, func(s *set, o operands) {
		step := newSGDStep(0.1, o.p, 0.25, o.q, o.yes)
		s.sgdMomentum(o.a, o.b, o.c, step)
	}},
	{"adam", false, func(s *set, o operands) {
		step := AdamStep{Shrink: 0.999, Decay: o.q, Beta1: 0.9, Beta2: 0.999, Rest1: 0.1, Rest2: 0.001,
			StepSize: o.p, Root: 0.0316, Eps: 1e-8}
		s.adam(o.a, o.b, o.c, o.d, step)
	}},
	{"add4", false, func(s *set, o operands) { // columns of a are summed over what lies in b
		n := len(o.a) / 5
		s.add4(o.a[:n], o.b[:4*n])
	}},
}

func TestExactKernels(t *testing.T) {
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
				// zeros of both signs, whose sums and differences depend on the order
				o := operands{a: zeros(rng, 100), b: zeros(rng, 100), c: zeros(rng, 100), d: zeros(rng, 100), p: 0.5}
				compare(t, rng, s, k.run, o, 0)
			})
		}
	}
}

// compare runs a kernel of s and the plain one on copies of o, and wants the same in all arrays and nothing written
// around them. layout says which of b (1) and c (2) are a.
func compare(t *testing.T, rng *rand.Rand, s *set, run func(*set, operands), o operands, layout int) {
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
