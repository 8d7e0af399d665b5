package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// turns makes the calls on one Comm run one after another. A call runs in the goroutine that makes it if no other call runs or waits.
// Otherwise it is queued.
type turns struct {
	taken  atomic.Bool
	queued atomic.Int32

	mu    sync.Mutex // guards queue
	queue []*queuedCall
}

// take takes the turn if no call has it or waits for it. It reports whether it has.
func (t *turns) take() bool { return t.queued.Load() == 0 && t.taken.CompareAndSwap(false, true) }

// push queues a call.
func (t *turns) push(p *queuedCall) {
	t.mu.Lock()
	t.queue = append(t.queue, p)
	t.queued.Add(1)
	t.mu.Unlock()
}

// pop removes the first call from the queue and returns it.
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

// withdraw removes a call from the queue, and reports whether it was still there.
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

// give gives the turn back. If calls are queued, it tries to take the turn again for them, and reports whether it has.
func (t *turns) give() bool {
	t.taken.Store(false)
	return t.queued.Load() > 0 && t.taken.CompareAndSwap(false, true)
}

// queuedCall is a call that waits for its turn: a collective, or another function that must not run beside one.
type queuedCall struct {
	ctx  context.Context
	op   operation
	do   func() error // if not nil, runs instead of op
	what string       // the name of do
	err  error
	done chan struct{}
}

// name returns the call's name, for errors.
func (p *queuedCall) name() string {
	if p.do != nil {
		return p.what
	}
	return p.op.kind.String()
}

// start queues a call without waiting for it.
func (k *core) start(p *queuedCall) *queuedCall {
	p.done = make(chan struct{})
	k.turns.push(p)
	if k.turns.taken.CompareAndSwap(false, true) {
		go k.work()
	}
	return p
}

// finish waits for a call. If ctx ends before the call's turn comes, the Comm is broken, because the other ranks may have begun the call.
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
	err := fmt.Errorf("canceled while queued behind another collective: %w", context.Cause(ctx))
	broken := k.breakWith(fmt.Errorf("%s: %w", p.name(), err), err)
	k.world.writeFlight()
	return broken
}

// give gives the turn back, or passes it to queued calls.
func (k *core) give() {
	if k.turns.give() {
		go k.work()
	}
}

// work runs the queued calls, one after another. It has the turn.
func (k *core) work() {
	finished := false
	defer func() {
		if !finished { // an operation made by NewOp has ended the goroutine
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
	p.err = errors.New("the goroutine of the call ended before the call did") // replaced when the call ends
	if p.do != nil {
		p.err = p.do()
	} else {
		p.err = k.execute(p.ctx, &p.op)
	}
}

// exclusively runs f, which is called what in errors, when no call runs. f's context ends with ctx, and when the Comm is closed.
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

// lifetime returns a context that ends when the Comm is closed.
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
