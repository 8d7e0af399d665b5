package store

import (
	"context"
	"slices"
	"sync"
)

// replyLine is a number of bytes that replies share. Who finds too few left waits for its turn, in the order of coming.
type replyLine struct {
	most int

	mu      sync.Mutex
	used    int
	waiting []*inLine // the first to be served first
}

type inLine struct {
	size int
	turn chan struct{} // closed when the bytes are its own
}

// take returns when size bytes, which must not be more than most, are the caller's, or with ctx's error.
func (l *replyLine) take(ctx context.Context, size int) error {
	l.mu.Lock()
	if len(l.waiting) == 0 && l.used+size <= l.most {
		l.used += size
		l.mu.Unlock()
		return nil
	}
	w := &inLine{size, make(chan struct{})}
	l.waiting = append(l.waiting, w)
	l.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	} else {
		l.used -= size // its turn has just come
	}
	l.call()
	return ctx.Err()
}

func (l *replyLine) give(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used -= size
	l.call()
}

// call serves the first in the line for as long as there is room. mu is held.
func (l *replyLine) call() {
	for len(l.waiting) > 0 && l.used+l.waiting[0].size <= l.most {
		l.used += l.waiting[0].size
		close(l.waiting[0].turn)
		l.waiting = slices.Delete(l.waiting, 0, 1)
	}
}
