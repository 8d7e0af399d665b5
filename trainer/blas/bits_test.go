package blas

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// moved is p with operands at other addresses: each begins some elements behind what malloc gives.
func (p product) moved(a, b, c int) product {
	shift := func(x []float32, by int) []float32 { return append(make([]float32, by, by+len(x)), x...)[by:] }
	p.a, p.b, p.c = shift(p.a, a), shift(p.b, b), shift(p.c, c)
	return p
}

// TestAddressesDoNotCount holds that the bits of a product do not depend on where its operands lie in memory: parameters lie
// elsewhere with ZeRO, and gradients with other buckets.
func TestAddressesDoNotCount(t *testing.T) {
	for name, lib := range libraries(t) {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			dim, offset := rapid.IntRange(1, 70), rapid.IntRange(0, 15)
			p := newProduct(rapid.SampledFrom(transposes).Draw(t, "tA"), rapid.SampledFrom(transposes).Draw(t, "tB"),
				dim.Draw(t, "m"), dim.Draw(t, "n"), dim.Draw(t, "k"), rapid.IntRange(0, 5).Draw(t, "gap"), 1, 1)
			q := p.moved(offset.Draw(t, "a"), offset.Draw(t, "b"), offset.Draw(t, "c"))
			p = p.moved(0, 0, 0)
			p.run(lib)
			q.run(lib)
			if !slices.EqualFunc(p.c, q.c, sameBits) {
				t.Errorf("%d %d %d, %c%c: other bits at other addresses", p.m, p.n, p.k, p.tA, p.tB)
			}
		}))
	}
}
