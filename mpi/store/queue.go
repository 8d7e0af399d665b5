package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
)

// A key may also have a queue of values that PyTorch's clients push and pop, first in, first out (torchquery.go). The queue is
// independent of the key's value. Of the other operations, only Check and Wait of PyTorch's clients see it.

// errTooLong means that an operation was not done because its result is longer than the caller accepts now.
var errTooLong = errors.New("too long")

// anyLength accepts results of any length.
const anyLength = math.MaxInt

// push appends a copy of value to key's queue, and wakes one of the clients that wait for it.
func (m *memory) push(key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := cmp.Or(m.usable(key), checkValue(value))
	if err == nil {
		err = m.fits(len(m.values)+m.queued+1, m.size+len(key)+len(value))
	}
	if err != nil {
		return fmt.Errorf("push to %s: %w", quote(key), err)
	}
	m.queues[key] = append(m.queues[key], bytes.Clone(value))
	m.queued++
	m.size += len(key) + len(value)
	m.wakePopper(key)
	return nil
}

// pop removes the first value from key's queue and returns it, or returns errTooLong if the value has more than longest bytes. n is
// how many values the queue had. If n is 0, value is nil.
func (m *memory) pop(key string, longest int) (n int, value []byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(key); err != nil {
		return 0, nil, fmt.Errorf("pop from %s: %w", quote(key), err)
	}
	queue := m.queues[key]
	if len(queue) > 0 && len(queue[0]) > longest {
		return 0, nil, errTooLong
	}
	switch n = len(queue); n {
	case 0:
		return 0, nil, nil
	case 1:
		delete(m.queues, key)
	default:
		m.queues[key] = queue[1:]
	}
	value, queue[0] = queue[0], nil // the queue's array must not keep the value
	m.queued--
	m.size -= len(key) + len(value)
	return n, value, nil
}

// queueLen returns how many values key's queue has.
func (m *memory) queueLen(key string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(key); err != nil {
		return 0, fmt.Errorf("count the queue of %s: %w", quote(key), err)
	}
	return len(m.queues[key]), nil
}

// hasOrQueues reports whether key has a value, or a queue that is not empty. mu is held.
func (m *memory) hasOrQueues(key string) bool { return m.has(key) || len(m.queues[key]) > 0 }

// waitOrPop is Wait, except that a queue which is not empty counts like a value. Of the calls that wait for one queue, a push wakes
// only one, because the others would find it empty. If it woke the caller, wokenFor is the queue's key, and the caller must pop
// from it or call wakeNextPopper. Otherwise wokenFor is nil.
func (m *memory) waitOrPop(ctx context.Context, keys []string) (wokenFor *string, err error) {
	if err := checkKeys(keys); err != nil {
		return nil, fmt.Errorf("wait: %w", err)
	}
	for from := 0; ; {
		i, a, woken, err := m.allOrEnqueue(keys, from)
		if a == nil {
			return wokenFor, err
		}
		if wokenFor != nil {
			m.wakeNextPopper(*wokenFor)
			wokenFor = nil
		}
		from = i
		select {
		case <-a.ready:
		case <-woken:
			wokenFor = &keys[i]
		case <-m.closing:
			return nil, fmt.Errorf("waiting for %s: %w", quote(keys[i]), ErrClosed)
		case <-ctx.Done():
			m.leaveQueue(keys[i], a, woken)
			return nil, m.waitError(ctx.Err(), keys...)
		}
	}
}

// allOrEnqueue returns no arrival if every key has a value or a queue that is not empty. Otherwise it returns the index of a key
// that has neither, its arrival, and a channel that is closed when a push to it wakes the caller.
func (m *memory) allOrEnqueue(keys []string, from int) (int, *arrival, chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.closed(); err != nil {
		return 0, nil, nil, fmt.Errorf("wait: %w", err)
	}
	i := absent(keys, from, m.hasOrQueues)
	if i < 0 {
		return 0, nil, nil, nil
	}
	a, woken := m.expect(keys[i]), make(chan struct{})
	a.poppers = append(a.poppers, woken)
	return i, a, woken, nil
}

// leaveQueue removes woken from the calls that wait for key's queue. If it has been woken already, it wakes the next call instead.
func (m *memory) leaveQueue(key string, a *arrival, woken chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(a.poppers, woken)
	if i < 0 {
		m.wakePopper(key)
		return
	}
	a.poppers = slices.Delete(a.poppers, i, i+1)
	m.stopWaiting(key, a)
}

// wakeNextPopper wakes the next call that waits for key's queue, if the queue is not empty.
func (m *memory) wakeNextPopper(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wakePopper(key)
}

// wakePopper is wakeNextPopper for callers that hold mu.
func (m *memory) wakePopper(key string) {
	a, ok := m.arrivals[key]
	if !ok || len(a.poppers) == 0 || len(m.queues[key]) == 0 {
		return
	}
	close(a.poppers[0])
	a.poppers = slices.Delete(a.poppers, 0, 1)
	m.stopWaiting(key, a)
}
