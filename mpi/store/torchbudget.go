package store

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// allowance is a number of bytes that many share.
type allowance struct {
	most int64
	used atomic.Int64
}

// take tells whether size bytes were left.
func (a *allowance) take(size int) bool {
	if a.used.Add(int64(size)) <= a.most {
		return true
	}
	a.used.Add(-int64(size))
	return false
}

func (a *allowance) give(size int) { a.used.Add(-int64(size)) }

// replyBudget is a number of bytes that replies share. Who finds too few left waits for its turn, in the order of coming.
type replyBudget struct {
	most int

	mu      sync.Mutex
	used    int
	waiting []*replyWaiter // the first to be served first
}

type replyWaiter struct {
	size    int
	granted chan struct{} // closed when the bytes are its own
}

// take returns when size bytes, which must not be more than most, are the caller's, or with ctx's error.
func (b *replyBudget) take(ctx context.Context, size int) error {
	b.mu.Lock()
	if len(b.waiting) == 0 && b.used+size <= b.most {
		b.used += size
		b.mu.Unlock()
		return nil
	}
	w := &replyWaiter{size, make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, w); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	} else {
		b.used -= size // they have just been granted
	}
	b.grantNext()
	return ctx.Err()
}

func (b *replyBudget) give(size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= size
	b.grantNext()
}

// grantNext serves the first who wait for as long as there is room. mu is held.
func (b *replyBudget) grantNext() {
	for len(b.waiting) > 0 && b.used+b.waiting[0].size <= b.most {
		b.used += b.waiting[0].size
		close(b.waiting[0].granted)
		b.waiting = slices.Delete(b.waiting, 0, 1)
	}
}
