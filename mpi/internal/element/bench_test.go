package element

import (
	"fmt"
	"testing"
)

// benchSizes are an operand's bytes: from the call's overhead, over the caches, to memory.
var benchSizes = []int{64, 16 << 10, 1 << 20, 64 << 20}

// BenchmarkSum is a += b. An element counts as three times its size: two loads and a store.
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

// BenchmarkPair is a, b = a+b, a+b in blocks of 32 KiB, through a Kernel2 and through a Kernel and a copy. An element
// counts as four times its size: two loads and two stores.
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

// BenchmarkDivide is a /= 3, and every second time a /= 1/3, so that elements stay normal. An element counts as twice its size: a load and a store.
func BenchmarkDivide(b *testing.B) {
	for name, s := range map[string]set{"Go": {}, "chosen": best} {
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

// ones has every byte written, so that memory of its own is behind every page.
func ones(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = 1
	}
	return b
}
