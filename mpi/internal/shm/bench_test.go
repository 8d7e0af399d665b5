package shm

import (
	"fmt"
	"testing"
)

func benchmarkJob(b *testing.B, job string, ranks int, shared bool, sizes ...int) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			p := startProcesses(b, ranks)
			p.run(b, order{Job: job, Bytes: size, Rounds: 2, Shared: shared})
			b.SetBytes(int64(size))
			b.ResetTimer()
			p.run(b, order{Job: job, Bytes: size, Rounds: b.N, Shared: shared})
		})
	}
}

func BenchmarkAllReduce2(b *testing.B) {
	benchmarkJob(b, "all_reduce", 2, false, 4, 1<<10, 16<<10, 64<<10, 256<<10, 1<<20, 16<<20, 64<<20)
}

func BenchmarkAllReduce2Registered(b *testing.B) {
	benchmarkJob(b, "all_reduce", 2, true, 16<<10, 64<<10, 256<<10, 1<<20, 4<<20, 16<<20, 64<<20)
}

func BenchmarkAllReduce4(b *testing.B) {
	benchmarkJob(b, "all_reduce", 4, false, 4, 1<<10, 16<<10, 64<<10, 256<<10, 1<<20)
}

func BenchmarkReduce2(b *testing.B) { benchmarkJob(b, "reduce", 2, false, 64, 64<<10, 1<<20, 16<<20) }
func BenchmarkBroadcast2(b *testing.B) {
	benchmarkJob(b, "broadcast", 2, false, 4, 1<<10, 16<<10, 64<<10, 256<<10, 1<<20, 16<<20)
}
func BenchmarkAllGather2(b *testing.B) {
	benchmarkJob(b, "all_gather", 2, false, 16, 1<<10, 16<<10, 64<<10, 256<<10, 1<<20, 16<<20)
}
func BenchmarkReduceScatter2(b *testing.B) {
	benchmarkJob(b, "reduce_scatter", 2, false, 16, 1<<10, 16<<10, 64<<10, 256<<10, 1<<20, 16<<20)
}
func BenchmarkBarrier2(b *testing.B) { benchmarkJob(b, "barrier", 2, false, 0) }

// BenchmarkRing is a round trip: two hops.
func BenchmarkRing(b *testing.B) {
	benchmarkJob(b, "ping_pong", 2, false, 4, 1<<10, 16<<10, 64<<10, 1<<20, 16<<20)
}
