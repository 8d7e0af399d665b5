package mpi

import (
	"context"
	"sync"
	"sync/atomic"
)

// turns makes the calls on one Comm follow one another. The one that finds nothing before it runs where it was called; others
// queue.
type turns struct {
	taken  atomic.Bool
	queued atomic.Int32
	waited atomic.Bool // somebody is in await, or was

	mu    sync.Mutex // guards what follows
	queue []*pending
	idle  *sync.Cond // the turn was given back
}

// pending is a call that waits for its turn.
type pending struct {
	ctx  context.Context
	op   operation
	err  error
	done chan struct{}
}

// take takes the turn if nobody has it or waits for it.
func (t *turns) take() bool { return t.queued.Load() == 0 && t.taken.CompareAndSwap(false, true) }

// await waits for the turn until nobody has it or waits for it, and takes it.
func (t *turns) await() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle == nil {
		t.idle = sync.NewCond(&t.mu)
	}
	for t.waited.Store(true); !t.take(); {
		t.idle.Wait()
	}
}

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

// give gives the turn back and tells whether it is to be taken again, for calls that wait.
func (t *turns) give() bool {
	t.taken.Store(false)
	if t.queued.Load() > 0 {
		return t.taken.CompareAndSwap(false, true)
	}
	if t.waited.Load() {
		t.mu.Lock()
		t.idle.Broadcast()
		t.mu.Unlock()
	}
	return false
}
