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

// A key may also have a queue, of values that PyTorch's clients push and pop, the first first (torchquery.go). It has
// nothing to do with the key's value, and of other operations only Check and Wait of PyTorch's clients see it.

// errTooLong is why something is not done whose outcome is a longer value than the caller takes now.
var errTooLong = errors.New("too long")

// anyLength is for who takes it.
const anyLength = math.MaxInt

// push puts a copy of value at the end of key's queue, and wakes one of those who wait for that.
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
	m.wakeNext(key)
	return nil
}

// pop takes the first value from key's queue, unless that has more than longest bytes. n is how many there were; with 0 there is no
// value.
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
	value, queue[0] = queue[0], nil // the array behind the queue lets go of it
	m.queued--
	m.size -= len(key) + len(value)
	return n, value, nil
}

// queueLen is how many values key's queue has.
func (m *memory) queueLen(key string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(key); err != nil {
		return 0, fmt.Errorf("count what is queued at %s: %w", quote(key), err)
	}
	return len(m.queues[key]), nil
}

// hasOrQueues tells whether key has a value, or a queue with something in it. mu is held.
func (m *memory) hasOrQueues(key string) bool { return m.has(key) || len(m.queues[key]) > 0 }

// waitOrPop is Wait for which something in a key's queue is as good as a value. Of those who wait at one queue, a push wakes
// one, as the others would find it empty. Where that was the caller, turn is the queue's key, and it must pop from it or
// call passTurn. Otherwise turn is nil.
func (m *memory) waitOrPop(ctx context.Context, keys []string) (turn *string, err error) {
	if err := checkKeys(keys); err != nil {
		return nil, fmt.Errorf("wait: %w", err)
	}
	for from := 0; ; {
		i, a, woken, err := m.allOrLine(keys, from)
		if a == nil {
			return turn, err
		}
		if turn != nil {
			m.passTurn(*turn)
			turn = nil
		}
		from = i
		select {
		case <-a.ready:
		case <-woken:
			turn = &keys[i]
		case <-m.closing:
			return nil, fmt.Errorf("waiting for %s: %w", quote(keys[i]), ErrClosed)
		case <-ctx.Done():
			m.leaveLine(keys[i], a, woken)
			return nil, m.waitError(ctx.Err(), keys...)
		}
	}
}

// allOrLine returns no arrival where every key has a value or something queued; otherwise the index of one that has
// neither, its arrival, and the caller's place in that one's line: a channel that is closed when its turn has come.
func (m *memory) allOrLine(keys []string, from int) (int, *arrival, chan struct{}, error) {
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
	a.line = append(a.line, woken)
	return i, a, woken, nil
}

// leaveLine takes woken from key's line, or passes its turn on if that has come already.
func (m *memory) leaveLine(key string, a *arrival, woken chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(a.line, woken)
	if i < 0 {
		m.wakeNext(key)
		return
	}
	a.line = slices.Delete(a.line, i, i+1)
	m.forgo(key, a)
}

// passTurn wakes the next in key's line, if there is still something in its queue.
func (m *memory) passTurn(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wakeNext(key)
}

// wakeNext is passTurn for who holds mu.
func (m *memory) wakeNext(key string) {
	a, ok := m.arrivals[key]
	if !ok || len(a.line) == 0 || len(m.queues[key]) == 0 {
		return
	}
	close(a.line[0])
	a.line = slices.Delete(a.line, 0, 1)
	m.forgo(key, a)
}
