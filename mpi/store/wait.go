package store

import (
	"bytes"
	"context"
	"fmt"
)

// arrival is an absent key for which calls wait.
type arrival struct {
	waiting int             // how many calls wait; guarded by memory.mu
	ready   chan struct{}   // closed when the key exists
	value   []byte          // the key's value then; set before ready is closed
	poppers []chan struct{} // of those calls that a push to the key's queue may also wake; guarded by memory.mu
}

func (m *memory) Get(ctx context.Context, key string) ([]byte, error) {
	value, err := m.get(ctx, key)
	return bytes.Clone(value), err
}

// get is Get without the copy. It also returns the value of a key that is created and deleted again while it waits.
func (m *memory) get(ctx context.Context, key string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, m.waitError(err, key)
	}
	value, a, err := m.valueOrArrival(key)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", quote(key), err)
	}
	if a == nil {
		return value, nil
	}
	if err := m.await(ctx, key, a, key); err != nil {
		return nil, err
	}
	return a.value, nil
}

func (m *memory) valueOrArrival(key string) ([]byte, *arrival, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(key); err != nil {
		return nil, nil, err
	}
	if value, ok := m.values[key]; ok {
		return value, nil, nil
	}
	return nil, m.expect(key), nil
}

// peek returns the value of key, or nil if it is absent.
func (m *memory) peek(key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(key); err != nil {
		return nil, fmt.Errorf("get %s: %w", quote(key), err)
	}
	return m.values[key], nil
}

func (m *memory) Wait(ctx context.Context, keys ...string) error {
	return m.whenThere(ctx, "wait", keys, func() error { return nil })
}

// whenThere calls then, with mu held, at a moment at which every key exists. It waits for one absent key at a time. The next search
// begins at that key, so that keys that come in order are looked up only once each.
func (m *memory) whenThere(ctx context.Context, what string, keys []string, then func() error) error {
	if err := checkKeys(keys); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := ctx.Err(); err != nil {
		return m.waitError(err, keys...)
	}
	for from := 0; ; {
		i, a, err := m.thenOrArrival(keys, from, then)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if a == nil {
			return nil
		}
		if err := m.await(ctx, keys[i], a, keys...); err != nil {
			return err
		}
		from = i
	}
}

// thenOrArrival calls then, or returns the index and the arrival of an absent key.
func (m *memory) thenOrArrival(keys []string, from int, then func() error) (int, *arrival, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.closed(); err != nil {
		return 0, nil, err
	}
	i := absent(keys, from, m.has)
	if i < 0 {
		return 0, nil, then()
	}
	return i, m.expect(keys[i]), nil
}

// has reports whether key exists. mu is held.
func (m *memory) has(key string) bool {
	_, ok := m.values[key]
	return ok
}

// present reports whether every key exists, according to there, which is has or hasOrQueues.
func (m *memory) present(keys []string, there func(key string) bool) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.closed(); err != nil {
		return false, fmt.Errorf("look for keys: %w", err)
	}
	return absent(keys, 0, there) < 0, nil
}

// absent returns the index of an absent key, or -1. It begins at index from, and wraps around.
func absent(keys []string, from int, there func(key string) bool) int {
	for n := range keys {
		i := (from + n) % len(keys)
		if !there(keys[i]) {
			return i
		}
	}
	return -1
}

// expect returns the arrival of an absent key, and counts the caller among the calls that wait. mu is held.
func (m *memory) expect(key string) *arrival {
	a, ok := m.arrivals[key]
	if !ok {
		a = &arrival{ready: make(chan struct{})}
		m.arrivals[key] = a
	}
	a.waiting++
	return a
}

// stopWaiting counts one call less that waits for key's arrival a. mu is held.
func (m *memory) stopWaiting(key string, a *arrival) {
	a.waiting--
	if a.waiting == 0 && m.arrivals[key] == a {
		delete(m.arrivals, key)
	}
}

// arrived wakes the calls that wait for key. mu is held.
func (m *memory) arrived(key string, value []byte) {
	if a, ok := m.arrivals[key]; ok {
		a.value = value
		close(a.ready)
		delete(m.arrivals, key)
	}
}

// await waits for key's arrival a. all are all keys that the caller waits for.
func (m *memory) await(ctx context.Context, key string, a *arrival, all ...string) error {
	select {
	case <-a.ready:
		return nil
	case <-m.closing:
		return fmt.Errorf("waiting for %s: %w", quote(key), ErrClosed)
	case <-ctx.Done():
	}
	m.mu.Lock()
	m.stopWaiting(key, a)
	m.mu.Unlock()
	return m.waitError(ctx.Err(), all...)
}

func (m *memory) waitError(err error, keys ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &WaitError{Keys: keys, Err: err}
	for _, key := range keys {
		if _, ok := m.values[key]; ok {
			continue
		}
		if e.Absent++; len(e.Missing) < namedKeys {
			e.Missing = append(e.Missing, key)
		}
	}
	return e
}
