package blas

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestGoIsItsDefinition compares bits with what Go's doc says, which names no block, tile or vector: so one CPU's are another's.
func TestGoIsItsDefinition(t *testing.T) {
	var lib Go
	rapid.Check(t, func(t *rapid.T) {
		dim := rapid.OneOf(rapid.IntRange(1, 5), rapid.IntRange(1, 200)) // on both sides of a block
		p := newProduct(rapid.SampledFrom(transposes).Draw(t, "tA"), rapid.SampledFrom(transposes).Draw(t, "tB"),
			dim.Draw(t, "m"), dim.Draw(t, "n"), dim.Draw(t, "k"), rapid.IntRange(0, 9).Draw(t, "gap"),
			rapid.SampledFrom([]float32{1, -0.3}).Draw(t, "alpha"), rapid.SampledFrom([]float32{0, 1, 0.7}).Draw(t, "beta"))
		first, second := rapid.IntRange(0, p.k-1).Draw(t, "first"), rapid.IntRange(0, p.k-1).Draw(t, "second")
		p.insert(first, 1<<40)
		p.insert(second, -1<<40) // what is added between them loses its last bits, so another order shows
		want := slices.Clone(p.c)
		a, b := vectors(p.a, p.lda, p.tA, p.m, p.k), vectors(p.b, p.ldb, flip(p.tB), p.n, p.k)
		for i := range p.m {
			for j := range p.n {
				s := 0.0
				for l, v := range a[i] {
					s += v * b[j][l]
				}
				result := float64(float64(p.alpha) * s)
				if c := &want[i*p.ldc+j]; p.beta == 0 {
					*c = float32(result)
				} else {
					*c = float32(result + float64(p.beta)*float64(*c))
				}
			}
		}
		p.run(&lib)
		if !slices.EqualFunc(p.c, want, sameBits) {
			t.Errorf("%d %d %d, %c%c: other bits than the definition", p.m, p.n, p.k, p.tA, p.tB)
		}
	})
}

// insert makes a term of all of c's elements v.
func (p product) insert(term int, v float32) {
	for i := range p.m {
		from(p.a, p.lda, p.tA, i, term)[0] = v
	}
	for j := range p.n {
		from(p.b, p.ldb, p.tB, term, j)[0] = 1
	}
}

// TestGoLeavesNothingOut holds that 0 times NaN or an infinity shows, in every element and from every term.
func TestGoLeavesNothingOut(t *testing.T) {
	const m, n, k = 5, 26, 3
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
		for _, tA := range transposes {
			for _, tB := range transposes {
				for term := range k {
					p := newProduct(tA, tB, m, n, k, 0, 1, 0)
					clear(p.a)
					clear(p.b)
					for i := range m {
						from(p.a, p.lda, tA, i, term)[0] = bad
					}
					p.run(new(Go))
					if i := slices.IndexFunc(p.c, func(v float32) bool { return v == v }); i >= 0 {
						t.Errorf("%c%c: element %d is %v with 0 times %v in its term %d", tA, tB, i, p.c[i], bad, term)
					}
				}
			}
		}
	}
}
