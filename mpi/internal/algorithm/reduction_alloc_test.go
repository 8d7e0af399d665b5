package algorithm

import (
	"fmt"
	"math"
	"testing"
)

// No algorithm allocates anything but what its port gives it.
func TestReductionsDoNotAllocate(t *testing.T) { // without the race detector
	const n = 4 << 20
	for _, size := range []int{2, 3, 8} {
		p := &idlePort{size: size, scratch: make([]byte, 16*n), tickets: make([]Ticket, 1<<16)}
		in, out := make([]byte, n), make([]byte, n)
		r := Reduction{Size: 8, Kernel: func(dst, a, b []byte) {}}
		check := func(name string, run func() error) {
			for p.rank = range size {
				// The runtime allocates now and then, too, which two runs do not hide: the least of several tries decides.
				least := math.Inf(1)
				for try := 0; try < 5 && least > 0; try++ {
					least = min(least, testing.AllocsPerRun(2, func() {
						if err := run(); err != nil {
							t.Error(err)
						}
					}))
				}
				if least > 0 {
					t.Errorf("%s, rank %d of %d: %v allocations", name, p.rank, size, least)
				}
			}
		}
		for _, e := range fitting(AllReduces(), size) {
			check("allreduce "+e.Name, func() error { return e.Run(p, in, r) })
		}
		for _, e := range fitting(Reduces(), size) {
			check("reduce "+e.Name, func() error { return e.Run(p, in, 1, r) })
		}
		for _, e := range fitting(ReduceScatters(), size) {
			at := bounds(size, n/8, 8)["evenly"]
			check("reduce-scatter "+e.Name, func() error {
				return e.Run(p, out[:at[p.rank+1]-at[p.rank]], in, at, r)
			})
		}
		for _, e := range fitting(Scans(), size) {
			check("scan "+e.Name, func() error { return e.Run(p, in, r) })
		}
		for _, e := range fitting(Exscans(), size) {
			check("exscan "+e.Name, func() error { return e.Run(p, in, r) })
		}
	}
}

// The time of an algorithm's own work on one rank, without that of messages and kernels.
func BenchmarkReductionOverhead(b *testing.B) {
	r := Reduction{Size: 4, Kernel: func(dst, a, b []byte) {}}
	buf := make([]byte, 4)
	for _, size := range []int{2, 8} {
		p := &idlePort{size: size, scratch: make([]byte, 1<<20), tickets: make([]Ticket, 1<<12)}
		for _, e := range fitting(AllReduces(), size) {
			b.Run(fmt.Sprintf("%s/%d", e.Name, size), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := e.Run(p, buf, r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
