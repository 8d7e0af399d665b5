package element

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// These tests compare this CPU's kernels with the plain loops. If the CPU has no special kernels, they compare the loops with themselves,
// which still tests the access to memory.

// layout says which arrays the results go to: 0 is a, 1 is b, 2 and 3 are others.
type layout struct{ dst, dst2 int }

var (
	single = []layout{{2, 2}, {0, 0}, {1, 1}}
	double = []layout{{2, 3}, {0, 1}, {1, 0}, {0, 3}, {1, 3}, {2, 0}, {2, 1}}
)

// The chosen kernels agree with the plain ones for every length around the block, and for long ones.
func TestChosenKernelsAgreeWithPlainOnes(t *testing.T) {
	for _, typ := range allTypes() {
		for op, kernel := range kernels[typ] {
			if kernel == nil {
				continue
			}
			t.Run(fmt.Sprintf("%v/%v", typ, Op(op)), func(t *testing.T) {
				t.Parallel()
				rng := newRand(t)
				lengths := []int{0, 1, 7, 33, 1023, 4099}
				if Op(op) == Sum { // sums are in assembly
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

func TestKernel2AgreesWithPlainLoops(t *testing.T) {
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

// once makes a Kernel2 of a kernel that writes both results to one place.
func once(kernel Kernel) Kernel2 {
	return func(dst, _, a, b []byte) { kernel(dst, a, b) }
}

// compare runs kernel on n elements in every allowed layout, at random alignments. It checks that dst and dst2 have plain's results, and
// that nothing else has changed. If dst2 is dst, kernel is a Kernel.
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
		typ %= uint8(len(plain)) // callers only have types that exist
		kernel, err := KernelOf(Type(typ), Op(op))
		if err != nil {
			return
		}
		n := len(data) / 2 / Type(typ).Size() * Type(typ).Size()
		data = bytes.Clone(data) // the fuzzer's memory must not be written
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

// arena holds four arrays in one piece of memory, at random places with gaps in between.
type arena struct {
	memory, before []byte
	of             [4][]byte
	at             [4]int
}

func newArena(rng *rand.Rand, typ Type, n int) *arena {
	const gap = 256
	size := n * typ.Size()
	m := &arena{memory: make([]byte, 4*(size+gap)+gap)}
	for i := range m.memory {
		m.memory[i] = 0xa5
	}
	for i := range m.of {
		m.at[i] = i*(size+gap) + rng.IntN(gap/typ.Size())*typ.Size()
		m.of[i] = m.memory[m.at[i] : m.at[i]+size : m.at[i]+size]
	}
	return m
}

func (m *arena) freeze() { m.before = bytes.Clone(m.memory) }

// check checks that all arrays except i and j are unchanged.
func (m *arena) check(t *testing.T, i, j int) {
	t.Helper()
	for _, k := range []int{i, j} {
		copy(m.before[m.at[k]:], m.of[k])
	}
	if !bytes.Equal(m.memory, m.before) {
		t.Fatalf("wrote outside its results")
	}
}

// benchSizes are an operand's bytes. They show the overhead of a call, the caches, and memory.
var benchSizes = []int{64, 16 << 10, 1 << 20, 64 << 20}

// BenchmarkSum measures a += b. An element counts as three times its size: two loads and a store.
func BenchmarkSum(b *testing.B) {
	for _, typ := range []Type{Float32, Float64, Uint8, Float16, BFloat16} {
		for name, kernel := range map[string]Kernel{"Go": plain[typ][Sum], "chosen": kernels[typ][Sum]} {
			for _, size := range benchSizes {
				b.Run(fmt.Sprintf("%v/%s/%d", typ, name, size), func(b *testing.B) {
					x, y := ones(size), ones(size)
					b.SetBytes(3 * int64(size))
					b.ReportAllocs()
					for b.Loop() {
						kernel(x, x, y)
					}
				})
			}
		}
	}
}

// BenchmarkPair measures a, b = a+b, a+b in blocks of 32 KiB, through a Kernel2 and through a Kernel and a copy. An element counts as four
// times its size: two loads and two stores.
func BenchmarkPair(b *testing.B) {
	const block = 32 << 10
	ways := map[string]Kernel2{"kernel_and_copy": func(dst, dst2, a, b []byte) {
		kernels[Float32][Sum](dst, a, b)
		copy(dst2, dst)
	}}
	if kernel, ok := Kernel2Of(Float32, Sum); ok {
		ways["kernel2"] = kernel
	}
	for name, kernel := range ways {
		for _, size := range []int{block, 1 << 20, 32 << 20} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				x, y := ones(size), ones(size)
				b.SetBytes(4 * int64(size))
				b.ReportAllocs()
				for b.Loop() {
					for at := 0; at < size; at += block {
						x, y := x[at:at+block], y[at:at+block]
						kernel(x, y, x, y)
					}
				}
			})
		}
	}
}

// BenchmarkDivide measures a /= 3, and every second time a /= 1/3, so that elements stay normal. An element counts as twice its size: a
// load and a store.
func BenchmarkDivide(b *testing.B) {
	for name, s := range map[string]routineSet{"Go": {}, "chosen": available} {
		for _, size := range benchSizes {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				x := ones(size)
				b.SetBytes(2 * int64(size))
				b.ReportAllocs()
				by := float32(3)
				for b.Loop() {
					divideBlockwise(s.divide32, x, by)
					by = 1 / by
				}
			})
		}
	}
}

// ones returns memory in which every byte has been written, so that every page has its own memory.
func ones(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = 1
	}
	return b
}
