package mpi

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// turns makes the calls on one Comm follow one another. The one that finds nothing before it runs where it was called; others
// queue.
type turns struct {
	taken  atomic.Bool
	queued atomic.Int32

	mu    sync.Mutex // guards queue
	queue []*pending
}

// pending is what waits for its turn: a collective, or something else that needs the Comm for itself.
type pending struct {
	ctx  context.Context
	op   operation
	do   func() error // instead of op, unless it is nil
	what string       // do's name
	err  error
	done chan struct{}
}

// name is what it is, for errors.
func (p *pending) name() string {
	if p.do != nil {
		return p.what
	}
	return p.op.kind.String()
}

// take takes the turn if nobody has it or waits for it.
func (t *turns) take() bool { return t.queued.Load() == 0 && t.taken.CompareAndSwap(false, true) }

// push queues a call.
func (t *turns) push(p *pending) {
	t.mu.Lock()
	t.queue = append(t.queue, p)
	t.queued.Add(1)
	t.mu.Unlock()
}

// pop takes the first call that waits from the queue.
func (t *turns) pop() *pending {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		return nil
	}
	p := t.queue[0]
	t.queue = t.queue[1:]
	t.queued.Add(-1)
	return p
}

// withdraw takes a call from the queue, and tells whether it was still there.
func (t *turns) withdraw(p *pending) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.queue, p)
	if i < 0 {
		return false
	}
	t.queue = slices.Delete(t.queue, i, i+1)
	t.queued.Add(-1)
	return true
}

// give gives the turn back and tells whether it is to be taken again, for calls that wait.
func (t *turns) give() bool {
	t.taken.Store(false)
	return t.queued.Load() > 0 && t.taken.CompareAndSwap(false, true)
}
