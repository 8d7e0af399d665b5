package store

import (
	"context"
	"slices"
	"sync"
)

// budget is a number of bytes that several goroutines share.
type budget struct {
	most int

	mu      sync.Mutex
	used    int
	waiting []*budgetWaiter // in the order in which they are served
}

type budgetWaiter struct {
	size    int
	granted chan struct{} // closed when the waiter has got the bytes
}

// tryTake takes size bytes for the caller if they are left, and reports whether it did.
func (b *budget) tryTake(size int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.grant(size)
}

// take takes size bytes, at most b.most, for the caller, or returns ctx's error. If too few are left, it waits; waiting callers are
// served in the order in which they came.
func (b *budget) take(ctx context.Context, size int) error {
	b.mu.Lock()
	if b.grant(size) {
		b.mu.Unlock()
		return nil
	}
	w := &budgetWaiter{size, make(chan struct{})}
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
		b.used -= size // the bytes have just been granted
	}
	b.grantNext()
	return ctx.Err()
}

func (b *budget) give(size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= size
	b.grantNext()
}

// grant takes size bytes if they are left and no caller waits. mu is held.
func (b *budget) grant(size int) bool {
	if len(b.waiting) > 0 || b.used+size > b.most {
		return false
	}
	b.used += size
	return true
}

// grantNext serves waiting callers, in order, for as long as there is room. mu is held.
func (b *budget) grantNext() {
	for len(b.waiting) > 0 && b.used+b.waiting[0].size <= b.most {
		b.used += b.waiting[0].size
		close(b.waiting[0].granted)
		b.waiting = slices.Delete(b.waiting, 0, 1)
	}
}
