package element

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// These compare what this CPU gets with the plain loops. Where it gets nothing
// else they compare these with themselves, which still tests memory.

// layout says which arrays results go to: 0 is a, 1 is b, 2 and 3 are others.
type layout struct{ dst, dst2 int }

var (
	single = []layout{{2, 2}, {0, 0}, {1, 1}}
	double = []layout{{2, 3}, {0, 1}, {1, 0}, {0, 3}, {1, 3}, {2, 0}, {2, 1}}
)

// TestChosenKernels takes every length around the block, and big ones.
func TestChosenKernels(t *testing.T) {
	for _, typ := range allTypes() {
		for op, kernel := range kernels[typ] {
			if kernel == nil {
				continue
			}
			t.Run(fmt.Sprintf("%v/%v", typ, Op(op)), func(t *testing.T) {
				t.Parallel()
				rng := newRand(t)
				lengths := []int{0, 1, 7, 33, 1023, 4099}
				if Op(op) == Sum { // these are in assembly
					for n := range 201 {
						lengths = append(lengths, n)
					}
				}
				for _, n := range lengths {
					compare(t, rng, typ, plain[typ][op], once(kernel), n, single)
				}
			})
		}
	}
}

func TestKernel2(t *testing.T) {
	found := 0
	for _, typ := range allTypes() {
		for _, op := range allOps() {
			kernel, ok := Kernel2Of(typ, op)
			if !ok {
				continue
			}
			found++
			rng := newRand(t)
			for n := range 201 {
				compare(t, rng, typ, plain[typ][op], kernel, n, double)
			}
			compare(t, rng, typ, plain[typ][op], kernel, 4099, double)
		}
	}
	if found == 0 {
		t.Skip("this CPU has no Kernel2")
	}
}

// once is kernel with both results in one place.
func once(kernel Kernel) Kernel2 {
	return func(dst, _, a, b []byte) { kernel(dst, a, b) }
}

// compare runs kernel on n elements in every layout that is allowed, at random alignments, and wants what plain
// makes of them in dst and dst2, and nothing elsewhere. Where dst2 is dst, kernel is a Kernel.
func compare(t *testing.T, rng *rand.Rand, typ Type, plain Kernel, kernel Kernel2, n int, layouts []layout) {
	t.Helper()
	a, b := sample(rng, typ, n), sample(rng, typ, n)
	want := make([]byte, len(a))
	plain(want, a, b)
	for _, layout := range layouts {
		mem := newArena(rng, typ, n)
		copy(mem.of[0], a)
		copy(mem.of[1], b)
		mem.freeze()
		kernel(mem.of[layout.dst], mem.of[layout.dst2], mem.of[0], mem.of[1])
		if !same(t, typ, mem.of[layout.dst], want) || !same(t, typ, mem.of[layout.dst2], want) {
			t.Fatalf("%d elements, %+v", n, layout)
		}
		mem.check(t, layout.dst, layout.dst2)
	}
}

func FuzzKernels(f *testing.F) {
	f.Add(uint8(Float32), uint8(Sum), uint8(0), []byte("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"))
	f.Add(uint8(BFloat16), uint8(Avg), uint8(1), bytes.Repeat([]byte{0x80, 0x7f, 0x81, 0xff}, 40))
	f.Fuzz(func(t *testing.T, typ, op, layout uint8, data []byte) {
		kernel, err := KernelOf(Type(typ), Op(op))
		if err != nil {
			return
		}
		n := len(data) / 2 / Type(typ).Size() * Type(typ).Size()
		data = bytes.Clone(data) // the fuzzer's is not ours to write
		a, b := data[:n], data[n:2*n]
		want := make([]byte, n)
		plain[typ][op](want, a, b)
		dst := [][]byte{a, b, make([]byte, n)}[layout%3]
		kernel(dst, a, b)
		same(t, Type(typ), dst, want)
		if twice, ok := Kernel2Of(Type(typ), Op(op)); ok && layout%3 == 2 {
			twice(a, b, a, b)
			same(t, Type(typ), a, want)
			same(t, Type(typ), b, want)
		}
	})
}
