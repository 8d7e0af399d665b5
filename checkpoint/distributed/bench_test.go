package distributed

import (
	"context"
	"fmt"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
)

// benchState returns one replicated array of float32, as all ranks of a world hold it.
func benchState(bytes int) []Array {
	a := Array{Name: "weight", DType: "float32", Shape: []int{bytes / 4}, Data: make([]byte, bytes), Replicated: true}
	for i := range a.Data {
		a.Data[i] = byte(i * i >> 7)
	}
	return []Array{a}
}

// BenchmarkStall measures how long an asynchronous save stalls the training, and how long a plain copy of the same bytes takes. stall/copy
// is the ratio of the medians.
func BenchmarkStall(b *testing.B) {
	for _, mib := range []int{16, 256} {
		b.Run(fmt.Sprintf("%dMiB", mib), func(b *testing.B) {
			ctx := context.Background()
			arrays := benchState(mib << 20)
			dir, err := checkpoint.Open(b.TempDir(),
				checkpoint.Options{Codec: "none", Run: "bench", Attempt: 1, Keep: checkpoint.Policy{Last: 2}})
			must(b, err)
			s, err := New(ctx, newGoroutineGroup(1).member(0), dir, arrays, Options{Async: true})
			must(b, err)
			to := make([]byte, mib<<20)
			copy(to, arrays[0].Data) // now its pages are in memory, as the Saver's are
			var plain, stalls window
			b.SetBytes(int64(mib) << 20)
			b.ResetTimer()
			for step := range b.N {
				b.StopTimer()
				both := []func(){
					func() {
						b.StartTimer()
						began := time.Now()
						err := s.Save(ctx, Meta{Step: int64(step)})
						stalls.add(time.Since(began))
						b.StopTimer()
						must(b, err)
					},
					func() { began := time.Now(); copy(to, arrays[0].Data); plain.add(time.Since(began)) },
				}
				both[step%2]() // the second finds the caches warm
				both[1-step%2]()
				_, err := s.Wait(ctx)
				must(b, err)
				b.StartTimer()
			}
			b.StopTimer()
			stall := median(&stalls.last, b.N)
			b.ReportMetric(float64(stall)/float64(median(&plain.last, b.N)), "stall/copy")
			b.ReportMetric(stall.Seconds()*1000, "stall-ms")
			must(b, s.Close())
		})
	}
}

func median(all *[64]time.Duration, n int) time.Duration {
	w := window{n: 0}
	for _, d := range all[:min(n, len(all))] {
		w.add(d)
	}
	return w.quantile(50)
}

// BenchmarkSave measures a synchronous save by four ranks of one process. Each rank writes a quarter of the bytes.
func BenchmarkSave(b *testing.B) {
	const world, size = 4, 64 << 20
	ctx := context.Background()
	dir, err := checkpoint.Open(b.TempDir(), checkpoint.Options{Codec: "none", Run: "bench", Attempt: 1, Keep: checkpoint.Policy{Last: 2}})
	must(b, err)
	m := newGoroutineGroup(world)
	b.SetBytes(size)
	arrays := benchState(size)
	for _, err := range testkit.Each(world, func(rank int) error {
		d := dir
		if rank > 0 {
			d = nil
		}
		s, err := New(ctx, m.member(rank), d, arrays, Options{})
		if err != nil {
			return err
		}
		for step := range b.N {
			if err := s.Save(ctx, Meta{Step: int64(step)}); err != nil {
				return err
			}
		}
		return s.Close()
	}) {
		must(b, err)
	}
}
