package engine

import (
	"slices"
	"time"
)

// waiter is a goroutine that sleeps until something is over.
type waiter struct {
	group  *Group
	op     *Op         // or
	ready  func() bool // what it sleeps for
	next   *waiter     // another that sleeps for op
	fatal  bool        // if that does not come, the group fails
	asleep bool        // it is among Engine.sleepers
	woken  chan struct{}
	timer  *time.Timer
}

// register puts the caller among the sleepers; nil: there is nothing to sleep for any more.
func (e *Engine) register(g *Group, op *Op, ready func() bool, fatal bool) *waiter {
	e.mu.Lock()
	defer e.mu.Unlock()
	if over(op, ready) {
		return nil
	}
	if op == nil && fatal {
		e.desert(g)
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
	if op == nil && fatal && g.unsure() != nil {
		limit = min(limit, patience)
	}
	w.timer.Reset(limit)
	e.sleepers = append(e.sleepers, w)
	e.rouse()
	return w
}

// unregister takes w from among the sleepers, and tells whether it was still there.
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

// unhook takes w from among those that sleep for the op.
func (op *Op) unhook(w *waiter) {
	for at := &op.waits; *at != nil; at = &(*at).next {
		if *at == w {
			*at = w.next
			return
		}
	}
}

// release keeps a waiter that is awake for the next sleep.
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

// wakeReady wakes those whose condition has come true. mu is held.
func (e *Engine) wakeReady() {
	for i := 0; i < len(e.sleepers); {
		if w := e.sleepers[i]; w.ready != nil && w.ready() {
			e.wake(w)
			continue
		}
		i++
	}
}

// wakeGroup wakes those that wait for a condition of a group that has failed; who waits for an op is
// woken with it. mu is held.
func (e *Engine) wakeGroup(g *Group) {
	for i := 0; i < len(e.sleepers); {
		if w := e.sleepers[i]; w.group == g && w.ready != nil {
			e.wake(w)
			continue
		}
		i++
	}
}
