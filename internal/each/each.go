package each

import (
	"sync"
	"sync/atomic"
)

// atOnce is how many calls run at once: enough for hundreds of files on a file server that answers in a millisecond to take less than a
// second.
const atOnce = 16

// Index calls do for 0 to n-1, in several goroutines, and returns when all calls have returned.
func Index(n int, do func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(n, atOnce) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	workers.Wait()
}
