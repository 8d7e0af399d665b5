package blas

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"gonum.org/v1/gonum/blas"
)

// TestConcurrent has callers whose stacks move, each with its own matrices, while the garbage collector runs. A pointer into a
// stack, or to what nothing holds any longer, would show as a wrong result.
func TestConcurrent(t *testing.T) {
	for name, lib := range libraries(t) {
		t.Run(name, func(t *testing.T) {
			narrow, _ := Narrow(lib, BFloat16)
			stop, collected := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(collected)
				for {
					select {
					case <-stop:
						return
					default:
						runtime.GC()
					}
				}
			}()
			var callers sync.WaitGroup
			for i := range 8 {
				callers.Go(func() {
					for _, lib := range []Library{lib, narrow} {
						p := newProduct(blas.NoTrans, blas.Trans, 5+i, 40, 30+i, i, 1, 0)
						p.run(lib)
						want := slices.Clone(p.c)
						for round := range 50 {
							deep(round, func() { p.run(lib) })
							if !slices.EqualFunc(p.c, want, sameBits) {
								t.Errorf("caller %d: round %d differs", i, round)
								return
							}
						}
					}
				})
			}
			callers.Wait()
			close(stop)
			<-collected
		})
	}
}

// deep calls f on a stack that has grown.
func deep(frames int, f func()) byte {
	var frame [512]byte
	if frames == 0 {
		f()
	} else {
		frame[frames] = deep(frames-1, f)
	}
	return frame[frames]
}

func TestNoAllocation(t *testing.T) {
	for name, lib := range libraries(t) {
		for _, precision := range []Precision{Float32, BFloat16, Float16} {
			narrow, _ := Narrow(lib, precision)
			large := newProduct(blas.NoTrans, blas.NoTrans, 100, 260, 70, 0, 1, 1)
			small := newProduct(blas.Trans, blas.Trans, 3, 5, 7, 2, 1, 0)
			large.run(narrow)
			if got := testing.AllocsPerRun(100, func() { large.run(narrow); small.run(narrow) }); got != 0 {
				t.Errorf("%s, %s: %v allocations a round", name, precision, got)
			}
		}
	}
}
