package engine

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// How often a rank that polls does other things, in polls: of a link, which is mostly a system call, and of a condition, which
// is a look at memory.
const (
	opClock, readyClock = 4, 512   // look at the clock, and give the core away if that is due
	opLook, readyLook   = 64, 2048 // look at all links

	// crowdedClock takes their place where ranks share cores: whom this one waits for may wait for the core.
	crowdedClock = 4

	// alone is how long a rank polls as if nobody else wanted its core.
	alone = time.Microsecond

	// goSched is how often, in looks at the clock, it also lets other goroutines of this process on: those may be what others wait for.
	goSched = 16
)

// wait returns when op is done, or ready tells so, or the group has failed, and gives
// the group's error then.
//
// A rank that waits first polls: a message takes a tenth of the time that it takes to wake a sleeper. It
// soon gives up, as the core may be wanted by whom it waits for.
func (e *Engine) wait(ctx context.Context, g *Group, op *Op, ready func() bool) error {
	if e.manner.Spin > 0 && e.spin(ctx, g, op, ready) {
		return nil
	}
	return e.sleep(ctx, g, op, ready, true)
}

// over tells whether there is nothing more to wait for.
func over(op *Op, ready func() bool) bool {
	if op != nil {
		return op.Done()
	}
	return ready()
}

// spin polls for as long as the fabric's manner allows, and tells whether that was enough.
func (e *Engine) spin(ctx context.Context, g *Group, op *Op, ready func() bool) bool {
	clock, look := readyClock, readyLook
	if op != nil {
		clock, look = opClock, opLook
	}
	if e.manner.Yield {
		clock, look = crowdedClock, opLook
	}
	var start time.Time
	for i := 1; !over(op, ready); i++ {
		switch {
		case i%look == 0:
			e.tryLook()
		case op != nil:
			e.tryPoll(op)
		default:
			relax()
		}
		if i%clock != 0 {
			continue
		}
		if start.IsZero() {
			start = time.Now()
		}
		spent := time.Since(start)
		if spent > e.manner.Spin || ctx.Err() != nil || g.failed.Load() {
			return over(op, ready)
		}
		if e.manner.Yield || spent > alone {
			unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
		if i/clock%goSched == 0 {
			runtime.Gosched()
		}
	}
	return true
}

// tryPoll polls, unless another goroutine drives the links just now.
func (e *Engine) tryPoll(op *Op) {
	if e.mu.TryLock() {
		e.poll(op)
		e.mu.Unlock()
	}
}

// tryLook looks, unless another goroutine drives the links just now.
func (e *Engine) tryLook() {
	if e.mu.TryLock() {
		e.look()
		e.mu.Unlock()
	}
}

// poll looks for what op waits for. mu is held.
func (e *Engine) poll(op *Op) {
	if op.Done() {
		return
	}
	if len(e.writing) > 0 {
		e.flushAll()
	}
	if op.recv && op.peer != Any {
		until := op
		if e.attended() {
			until = nil // what is left for others in the buffer would wake nobody
		}
		e.read(e.peers[op.peer].data, until)
	} else if op.recv {
		e.look()
	}
}

// sleep waits until the attendant finds the waiting to be over, the context ends, or nothing has moved
// for the time-out. If the end of the context is not fatal to the group, it is the error, and nothing else.
func (e *Engine) sleep(ctx context.Context, g *Group, op *Op, ready func() bool, fatal bool) error {
	w := e.register(g, op, ready, fatal)
	if w == nil {
		return e.outcome(g, op, ready)
	}
	select {
	case e.kick <- struct{}{}:
	default:
	}
	before := g.progress(op)
	for {
		select {
		case <-w.woken:
			e.release(w)
			return e.outcome(g, op, ready)
		case <-ctx.Done():
			if !fatal && e.unregister(w) {
				e.release(w)
				return ctx.Err()
			}
			g.giveUp(w, fmt.Errorf("waited%s until %w", g.forWhom(op), contextError(ctx)))
		case <-w.timer.C:
			if !fatal {
				continue // only ctx ends this wait
			}
			if now := g.progress(op); now != before {
				before = now
				w.timer.Reset(e.options.Timeout)
				continue
			}
			g.giveUp(w, g.timeout(op))
		}
		if !e.unregister(w) {
			<-w.woken // the failure has woken it
		}
		e.release(w)
		return e.outcome(g, op, ready)
	}
}

// outcome is the error of a wait that is over.
func (e *Engine) outcome(g *Group, op *Op, ready func() bool) error {
	if op != nil {
		return op.err
	}
	if ready() {
		return nil
	}
	return g.Err()
}

// giveUp fails the group, unless the waiting has just come to its end.
func (g *Group) giveUp(w *waiter, err error) {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	if w.asleep {
		g.e.failGroup(g, err)
	}
}

// forWhom names the rank that op waits for.
func (g *Group) forWhom(op *Op) string {
	if op == nil || op.peer == Any {
		return ""
	}
	rank, _ := g.rankOf(int(op.peer))
	return fmt.Sprintf(" for rank %d", rank)
}

// progress counts what has moved for op.
func (g *Group) progress(op *Op) int {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	if op == nil {
		return 0
	}
	return op.moved
}

// contextError is ctx's error, and its cause where that says more.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
