package mpi

import (
	"context"
	"errors"
	"fmt"
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
	queue []*queuedCall
}

// take takes the turn if nobody has it or waits for it.
func (t *turns) take() bool { return t.queued.Load() == 0 && t.taken.CompareAndSwap(false, true) }

// push queues a call.
func (t *turns) push(p *queuedCall) {
	t.mu.Lock()
	t.queue = append(t.queue, p)
	t.queued.Add(1)
	t.mu.Unlock()
}

// pop takes the first call that waits from the queue.
func (t *turns) pop() *queuedCall {
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
func (t *turns) withdraw(p *queuedCall) bool {
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

// queuedCall is what waits for its turn: a collective, or something else that needs the Comm for itself.
type queuedCall struct {
	ctx  context.Context
	op   operation
	do   func() error // instead of op, unless it is nil
	what string       // do's name
	err  error
	done chan struct{}
}

// name is what it is, for errors.
func (p *queuedCall) name() string {
	if p.do != nil {
		return p.what
	}
	return p.op.kind.String()
}

// start queues a call, which goes on by itself.
func (k *core) start(p *queuedCall) *queuedCall {
	p.done = make(chan struct{})
	k.turns.push(p)
	if k.turns.taken.CompareAndSwap(false, true) {
		go k.work()
	}
	return p
}

// finish waits for a call. Where ctx ends before its turn has come, the Comm is broken, as the other ranks may have begun it.
func (k *core) finish(ctx context.Context, p *queuedCall) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
	}
	if !k.turns.withdraw(p) {
		<-p.done
		return p.err
	}
	err := fmt.Errorf("waited for its turn until %w", context.Cause(ctx))
	broken := k.breakWith(fmt.Errorf("%s: %w", p.name(), err), err)
	k.world.writeFlight()
	return broken
}

// give gives the turn back, or to those that wait for it.
func (k *core) give() {
	if k.turns.give() {
		go k.work()
	}
}

// work executes what waits, one after another. The turn is taken.
func (k *core) work() {
	finished := false
	defer func() {
		if !finished { // a user's operation has ended the goroutine
			go k.work()
		}
	}()
	for again := true; again; again = k.turns.give() {
		for p := k.turns.pop(); p != nil; p = k.turns.pop() {
			k.serve(p)
		}
	}
	finished = true
}

func (k *core) serve(p *queuedCall) {
	defer close(p.done)
	p.err = errors.New("its goroutine has ended in the middle of it") // unless it comes to its end
	if p.do != nil {
		p.err = p.do()
	} else {
		p.err = k.execute(p.ctx, &p.op)
	}
}

// exclusively runs f, whose name is what, in its turn, while no call does. Its context ends with ctx, and when the Comm is closed.
func (k *core) exclusively(ctx context.Context, what string, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(k.lifetime(), func() { cancel(ErrClosed) })
	defer stop()
	do := func() error { return f(ctx) }
	if !k.turns.take() {
		return k.finish(ctx, k.start(&queuedCall{ctx: ctx, what: what, do: do}))
	}
	defer k.give()
	return do()
}

// lifetime is a context that ends when the Comm is closed.
func (k *core) lifetime() context.Context {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.alive == nil {
		k.alive, k.end = context.WithCancel(context.Background())
		if k.err == ErrClosed {
			k.end()
		}
	}
	return k.alive
}
