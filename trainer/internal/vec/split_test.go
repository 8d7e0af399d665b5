package vec

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// byElement are the kernels by which each element is made of the elements at its place: arrays that they read and write.
var byElement = func() map[string]func(s *set, o operands) {
	all := map[string]func(s *set, o operands){
		"gelu":      func(s *set, o operands) { s.gelu(o.a, o.b) },
		"geluGrad":  func(s *set, o operands) { s.geluGrad(o.a, o.b, o.c) },
		"tanh":      func(s *set, o operands) { s.tanh(o.a, o.b) },
		"expSum":    func(s *set, o operands) { s.expSum(o.a, o.b, 3) },
		"normalize": func(s *set, o operands) { s.normalize(o.a, o.b, o.c, o.d, o.p, 1.3) },
		"normalizeSums": func(s *set, o operands) {
			s.normalizeSums(o.a, o.b, o.c, o.d, o.d, o.p, 1.3)
		},
		"normalizeGrad": func(s *set, o operands) { s.normalizeGrad(o.a, o.b, o.c, o.d, o.p, 1.3, 0.2, 0.1) },
		"float16": func(s *set, o operands) {
			half := make([]uint16, len(o.a))
			s.toFloat16(half, o.b)
			s.fromFloat16(o.a, half)
		},
		"bfloat16": func(s *set, o operands) {
			half := make([]uint16, len(o.a))
			s.toBFloat16(half, o.b)
			s.fromBFloat16(o.a, half)
		},
	}
	for _, k := range exact {
		if k.name != "add4" { // its rows lie behind each other
			all[k.name] = k.run
		}
	}
	return all
}()

// part is the elements from low to high of all arrays, at addresses of their own.
func (o operands) part(rng *rand.Rand, low, high int) operands {
	elsewhere := func(x []float32) []float32 {
		y, _ := guarded[float32](rng, high-low, 7)
		copy(y, x[low:high])
		return y
	}
	o.a, o.b, o.c, o.d = elsewhere(o.a), elsewhere(o.b), elsewhere(o.c), elsewhere(o.d)
	return o
}

// TestSplits holds that an array computed at once has the bits of one computed in parts, cut anywhere and lying anywhere: what ranks
// with ZeRO, other buckets and other shards rely on.
func TestSplits(t *testing.T) {
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
							all.b[i] = min(all.b[i], 3) // its largest argument is top
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
									t.Fatalf("operand %d, element %d of %d: %v in the part from %d to %d, %v in the whole", j, low+i, n, v, low, high, want)
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

// reductions are the kernels that make numbers of an array, for 1 element or more. What they come to may depend on where the array is cut.
var reductions = map[string]func(s *set, o operands) [2]float64{
	"sum":     func(s *set, o operands) [2]float64 { return [2]float64{s.sum(o.a)} },
	"dot":     func(s *set, o operands) [2]float64 { return [2]float64{s.dot(o.a, o.b)} },
	"max":     func(s *set, o operands) [2]float64 { return [2]float64{float64(s.max(o.a))} },
	"expSum":  func(s *set, o operands) [2]float64 { return [2]float64{s.expSum(o.b, o.a, 10)} },
	"moments": func(s *set, o operands) [2]float64 { a, b := s.moments(o.a); return [2]float64{a, b} },
	"normalizeSums": func(s *set, o operands) [2]float64 {
		a, b := s.normalizeSums(o.a, o.b, o.c, o.d, o.d, 0.1, 1.3)
		return [2]float64{a, b}
	},
}

// TestReductionsAnywhere holds that these do not depend on addresses.
func TestReductionsAnywhere(t *testing.T) {
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

// available is implementations, and says which a machine cannot run.
func available(t *testing.T) []*set {
	t.Helper()
	sets := implementations()
	for _, name := range []string{"avx2", "avx512"} {
		if !slices.ContainsFunc(sets, func(s *set) bool { return s.name == name }) {
			t.Run(name, func(t *testing.T) { t.Skipf("no %s here: of another CPU, or left out by the tag noasm", name) })
		}
	}
	return sets
}
