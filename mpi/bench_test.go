package mpi

import (
	"fmt"
	"testing"

	"ddpbatch/internal/testkit"
)

// BenchmarkAllReduce reports the bytes of the buffer per second, which nccl-tests call algbw.
func BenchmarkAllReduce(b *testing.B) {
	for _, transport := range []string{"shm", "tcp"} {
		b.Run(transport, func(b *testing.B) { benchmarkAllReduce(b, transport) })
	}
}

func benchmarkAllReduce(b *testing.B, transport string) {
	for _, size := range []int{2, 4} {
		for _, bytes := range []int{4, 64, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("%s/%d_bytes", rankName(size), bytes), func(b *testing.B) {
				benchmark(b, transport, size, bytes, func(c *Comm, buf []float32) error {
					return AllReduce(b.Context(), c, buf, Sum)
				})
			})
		}
	}
}

// BenchmarkBroadcast broadcasts from rank 0.
func BenchmarkBroadcast(b *testing.B) {
	for _, size := range []int{2, 4} {
		for _, bytes := range []int{4, 16 << 10, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("%s/%d_bytes", rankName(size), bytes), func(b *testing.B) {
				benchmark(b, "auto", size, bytes, func(c *Comm, buf []float32) error {
					return Broadcast(b.Context(), c, buf, 0)
				})
			})
		}
	}
}

func BenchmarkBarrier(b *testing.B) {
	for _, size := range []int{2, 4} {
		b.Run(rankName(size), func(b *testing.B) {
			benchmark(b, "auto", size, 0, func(c *Comm, _ []float32) error { return c.Barrier(b.Context()) })
		})
	}
}

// benchmark runs one collective on all ranks, back to back.
func benchmark(b *testing.B, transport string, size, bytes int, collective func(*Comm, []float32) error) {
	comms := newWorld(b, size, func(cfg *InitConfig) { cfg.Config.Transport = transport })
	bufs := make([][]float32, size)
	for rank := range bufs {
		bufs[rank] = make([]float32, bytes/4)
	}
	run := func(n int) {
		must(b, testkit.Each(size, func(rank int) error {
			for range n {
				if err := collective(comms[rank], bufs[rank]); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	run(10)
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	b.ResetTimer()
	run(b.N)
}
