package engine

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Wait returns when the op is done. If ctx ends first, or if the rank that it waits for makes no progress within the time-out, the group
// fails.
func (g *Group) Wait(ctx context.Context, op *Op) error {
	if !op.Done() {
		g.e.wait(ctx, g, op, nil)
	}
	return op.err
}

// Await returns when ready returns true. Other ranks change what ready looks at, and then call Notify.
func (g *Group) Await(ctx context.Context, ready func() bool) error {
	if ready() {
		return nil
	}
	return g.e.wait(ctx, g, nil, ready)
}

// Watch is Await for a caller that can do without the condition. The end of ctx is an error that does not break the group. ctx must have an
// end, because there is no other time-out.
func (g *Group) Watch(ctx context.Context, ready func() bool) error {
	if ready() {
		return nil
	}
	return g.e.sleep(ctx, g, nil, ready, false)
}

// Notify wakes the ranks of the group that sleep in an Await, so that they call ready again.
func (g *Group) Notify() {
	g.e.nudging.RLock()
	defer g.e.nudging.RUnlock()
	if !g.e.ended {
		g.nudge()
	}
}

func (g *Group) nudge() {
	for rank, world := range g.members {
		if rank != g.rank {
			g.e.fabric.WakeRank(world)
		}
	}
}

// Poll drives the links once, without waiting.
func (g *Group) Poll(op *Op) {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	g.e.poll(op)
}

// How often a polling rank does other things, in polls. Polling an op mostly takes a system call; polling a condition looks at memory.
const (
	opClock, readyClock = 4, 512   // look at the clock, and yield the core if it is time
	opLook, readyLook   = 64, 2048 // look at all links

	// crowdedClock replaces opClock and readyClock if ranks share cores: the rank that this one waits for may wait for the core.
	crowdedClock = 4

	// unsharedSpin is how long a rank polls as if nobody else needed its core.
	unsharedSpin = time.Microsecond

	// goSched is how often, in looks at the clock, it also lets other goroutines of this process run, for which other ranks may wait.
	goSched = 16
)

// wait returns when op is done, when ready returns true, or when the group has failed. In the last case it returns the group's error.
//
// A waiting rank polls first: receiving a message that way takes a tenth of the time of waking a sleeper. It soon stops polling, because
// the rank that it waits for may need the core.
func (e *Engine) wait(ctx context.Context, g *Group, op *Op, ready func() bool) error {
	if e.policy.Spin > 0 && e.spin(ctx, g, op, ready) {
		return nil
	}
	return e.sleep(ctx, g, op, ready, true)
}

// waitIsOver reports whether op is done or, if op is nil, whether ready returns true.
func waitIsOver(op *Op, ready func() bool) bool {
	if op != nil {
		return op.Done()
	}
	return ready()
}

// spin polls for as long as the fabric's policy allows, and reports whether the wait is over.
func (e *Engine) spin(ctx context.Context, g *Group, op *Op, ready func() bool) bool {
	clock, look := readyClock, readyLook
	if op != nil {
		clock, look = opClock, opLook
	}
	if e.policy.Yield {
		clock, look = crowdedClock, opLook
	}
	var start time.Time
	for i := 1; !waitIsOver(op, ready); i++ {
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
		if spent > e.policy.Spin || ctx.Err() != nil || g.failed.Load() {
			return waitIsOver(op, ready)
		}
		if e.policy.Yield || spent > unsharedSpin {
			unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
		if i/clock%goSched == 0 {
			runtime.Gosched()
		}
	}
	return true
}

// tryPoll calls poll, unless another goroutine drives the links at the moment.
func (e *Engine) tryPoll(op *Op) {
	if e.mu.TryLock() {
		e.poll(op)
		e.mu.Unlock()
	}
}

// tryLook calls look, unless another goroutine drives the links at the moment.
func (e *Engine) tryLook() {
	if e.mu.TryLock() {
		e.look()
		e.mu.Unlock()
	}
}

// poll drives the links on which op depends. mu is held.
func (e *Engine) poll(op *Op) {
	if op.Done() {
		return
	}
	if op.recv && op.peer != Any {
		until := op
		if e.attended() {
			until = nil // data of others left in the buffer would not wake them
		}
		e.read(e.peers[op.peer].data, until)
	} else if op.recv {
		e.look()
	}
	if len(e.writing) > 0 && !op.Done() {
		e.flushAll(!op.recv) // frames of writeLater are not to delay a receive
	}
}

// sleep waits until the attendant finds that the wait is over, the context ends, or nothing has moved for the time-out. If fatal is not
// set, the end of the context is an error that does not break the group, and there is no other time-out.
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
			g.giveUp(w, fmt.Errorf("canceled while waiting%s: %w", g.awaitedRank(op), contextError(ctx)))
		case <-w.timer.C:
			if !fatal {
				continue // only the end of ctx ends this wait
			}
			if now := g.progress(op); now != before {
				before = now
				w.timer.Reset(e.options.Timeout)
				continue
			}
			g.giveUp(w, g.timeout(op))
		}
		if !e.unregister(w) {
			<-w.woken // the failure has woken the waiter
		}
		e.release(w)
		return e.outcome(g, op, ready)
	}
}

// outcome returns the error of a wait that is over.
func (e *Engine) outcome(g *Group, op *Op, ready func() bool) error {
	if op != nil {
		return op.err
	}
	if ready() {
		return nil
	}
	return g.Err()
}

// giveUp fails the group, unless the wait has just ended.
func (g *Group) giveUp(w *waiter, err error) {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	if w.asleep {
		g.e.failGroup(g, err)
	}
}

// awaitedRank names the rank for which op waits, for errors.
func (g *Group) awaitedRank(op *Op) string {
	if op == nil || op.peer == Any {
		return ""
	}
	rank, _ := g.rankOf(int(op.peer))
	return fmt.Sprintf(" for rank %d", rank)
}

// progress returns how much has moved for op.
func (g *Group) progress(op *Op) int {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	if op == nil {
		return 0
	}
	return op.moved
}

// contextError returns ctx's error, with its cause if that says more.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// waiter is a goroutine that sleeps until op is done or ready returns true.
type waiter struct {
	group  *Group
	op     *Op
	ready  func() bool // if op is nil
	next   *waiter     // another waiter for op
	fatal  bool        // if the wait does not end in time, the group fails
	asleep bool        // it is in Engine.sleepers
	woken  chan struct{}
	timer  *time.Timer
}

// register adds the caller to the sleepers. It returns nil if the wait is over already.
func (e *Engine) register(g *Group, op *Op, ready func() bool, fatal bool) *waiter {
	e.mu.Lock()
	defer e.mu.Unlock()
	if waitIsOver(op, ready) {
		return nil
	}
	if op == nil && fatal {
		e.failIfDeserted(g)
	}
	if op == nil && g.err != nil {
		return nil
	}
	var w *waiter
	if n := len(e.waiters); n > 0 {
		w = e.waiters[n-1]
		e.waiters = e.waiters[:n-1]
	} else {
		w = &waiter{woken: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	}
	w.group, w.op, w.ready, w.fatal, w.asleep = g, op, ready, fatal, true
	if op != nil {
		w.next, op.waits = op.waits, w
	}
	limit := e.options.Timeout
	if op == nil && fatal && g.departureUnknown() != nil {
		limit = min(limit, departureWait)
	}
	w.timer.Reset(limit)
	e.sleepers = append(e.sleepers, w)
	e.wakeAttendant()
	return w
}

// unregister removes w from the sleepers, and reports whether it was still there.
func (e *Engine) unregister(w *waiter) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !w.asleep {
		return false
	}
	w.asleep = false
	e.sleepers = slices.DeleteFunc(e.sleepers, func(s *waiter) bool { return s == w })
	if w.op != nil {
		w.op.unhook(w)
	}
	return true
}

// unhook removes w from the waiters of the op.
func (op *Op) unhook(w *waiter) {
	for at := &op.waits; *at != nil; at = &(*at).next {
		if *at == w {
			*at = w.next
			return
		}
	}
}

// release keeps a waiter that is awake, to be used again.
func (e *Engine) release(w *waiter) {
	w.timer.Stop()
	e.mu.Lock()
	w.group, w.op, w.ready = nil, nil, nil
	e.waiters = append(e.waiters, w)
	e.mu.Unlock()
}

// wake ends the sleep of w. mu is held.
func (e *Engine) wake(w *waiter) {
	if !w.asleep {
		return
	}
	w.asleep = false
	e.sleepers = slices.DeleteFunc(e.sleepers, func(s *waiter) bool { return s == w })
	w.woken <- struct{}{}
}

// wakeReady wakes waiters whose condition has become true. mu is held.
func (e *Engine) wakeReady() { e.wakeIf(func(w *waiter) bool { return w.ready() }) }

// wakeGroup wakes waiters for conditions of a group that has failed. Waiters for an op are woken when the op ends. mu is held.
func (e *Engine) wakeGroup(g *Group) { e.wakeIf(func(w *waiter) bool { return w.group == g }) }

// wakeIf wakes waiters for a condition for which f returns true. mu is held.
func (e *Engine) wakeIf(f func(*waiter) bool) {
	for i := 0; i < len(e.sleepers); {
		if w := e.sleepers[i]; w.ready != nil && f(w) {
			e.wake(w)
			continue
		}
		i++
	}
}
