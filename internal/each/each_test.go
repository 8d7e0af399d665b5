package each

import (
	"sync/atomic"
	"testing"
)

func TestIndexCallsForEachOnce(t *testing.T) {
	for _, n := range []int{0, 1, atOnce, 1000} {
		calls := make([]atomic.Int32, n)
		Index(n, func(i int) { calls[i].Add(1) })
		for i := range calls {
			if got := calls[i].Load(); got != 1 {
				t.Fatalf("of %d: %d was called %d times", n, i, got)
			}
		}
	}
}

// The calls run at the same time: each waits for the other one.
func TestIndexCallsAtOnce(t *testing.T) {
	met := make(chan bool)
	Index(2, func(i int) {
		if i == 0 {
			met <- true
		} else {
			<-met
		}
	})
}
