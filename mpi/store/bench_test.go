package store

import (
	"fmt"
	"testing"
)

// BenchmarkSetGet measures one Set or Get of a value over loopback, from one goroutine.
func BenchmarkSetGet(b *testing.B) {
	c := connect(b, serve(b, ServerConfig{}))
	for _, size := range []int{16, 4 << 10, 1 << 20} {
		value := make([]byte, size)
		b.Run(fmt.Sprintf("set/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				if err := c.Set(b.Context(), "key", value); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("get/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := c.Get(b.Context(), "key"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkParallelAdd measures an Add when many goroutines share one connection.
func BenchmarkParallelAdd(b *testing.B) {
	c := connect(b, serve(b, ServerConfig{}))
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Add(b.Context(), "n", 1); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkMemory measures a Set in the process itself.
func BenchmarkMemory(b *testing.B) {
	m := NewMemory()
	value := make([]byte, 16)
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Set(b.Context(), "key", value); err != nil {
			b.Fatal(err)
		}
	}
}
