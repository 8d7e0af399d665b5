package store

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
)

// NewMemory returns an empty store in this process's memory.
func NewMemory() Store { return newMemory() }

// memory is the store itself; a Server gives clients access to one. Its
// exported methods are Store's; the others are what they and a Server's
// sessions are made of: they do not wait, and copy no values out.
type memory struct {
	maxKeys, maxBytes int

	mu       sync.Mutex
	values   map[string][]byte // a value is replaced, never changed: it may be read without mu
	size     int               // bytes in all keys and values
	arrivals map[string]*arrival
	closing  chan struct{} // closed by Close
}

func newMemory() *memory {
	return &memory{
		maxKeys: MaxKeys, maxBytes: MaxBytes,
		values:   make(map[string][]byte),
		arrivals: make(map[string]*arrival),
		closing:  make(chan struct{}),
	}
}

func (m *memory) Set(ctx context.Context, key string, value []byte) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("set %s: %w", quote(key), err)
	}
	return m.set(key, value)
}

func (m *memory) set(key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.put(key, value); err != nil {
		return fmt.Errorf("set %s: %w", quote(key), err)
	}
	return nil
}

func (m *memory) Add(ctx context.Context, key string, delta int64) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("add to %s: %w", quote(key), err)
	}
	return m.add(key, delta)
}

func (m *memory) add(key string, delta int64) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var number int64
	if value, ok := m.values[key]; ok {
		var err error
		if number, err = strconv.ParseInt(string(value), 10, 64); err != nil {
			return 0, fmt.Errorf("add to %s: its value is %w", quote(key), ErrNotNumber)
		}
	}
	sum := number + delta
	if delta > 0 && sum < number || delta < 0 && sum > number {
		return 0, fmt.Errorf("add to %s: the sum of %d and %d is %w", quote(key), number, delta, ErrNotNumber)
	}
	if err := m.put(key, strconv.AppendInt(nil, sum, 10)); err != nil {
		return 0, fmt.Errorf("add to %s: %w", quote(key), err)
	}
	return sum, nil
}

func (m *memory) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("compare and set %s: %w", quote(key), err)
	}
	value, err := m.compareSet(key, expected, desired)
	return bytes.Clone(value), err
}

func (m *memory) compareSet(key string, expected, desired []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.usable(key)
	// Equal takes an absent value, which is nil, for an empty one: so does CompareSet.
	if err == nil && bytes.Equal(m.values[key], expected) {
		err = m.put(key, desired)
	}
	if err != nil {
		return nil, fmt.Errorf("compare and set %s: %w", quote(key), err)
	}
	return m.values[key], nil
}

func (m *memory) Delete(ctx context.Context, key string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("delete %s: %w", quote(key), err)
	}
	return m.remove(key)
}

func (m *memory) remove(key string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(key); err != nil {
		return false, fmt.Errorf("delete %s: %w", quote(key), err)
	}
	value, ok := m.values[key]
	if ok {
		m.size -= len(key) + len(value)
		delete(m.values, key)
	}
	return ok, nil
}

// Close ends all waits and lets go of what the store held.
func (m *memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed() == nil {
		close(m.closing)
		m.values, m.size = nil, 0
	}
	return nil
}

func (m *memory) closed() error {
	select {
	case <-m.closing:
		return ErrClosed
	default:
		return nil
	}
}

// usable tells whether anything can be done with key.
func (m *memory) usable(key string) error {
	if err := m.closed(); err != nil {
		return err
	}
	return checkKey(key)
}

// put stores a copy of value and wakes who waits for key. mu is held.
func (m *memory) put(key string, value []byte) error {
	if err := m.usable(key); err != nil {
		return err
	}
	if err := checkValue(value); err != nil {
		return err
	}
	size, keys := m.size+len(value), len(m.values)
	if old, ok := m.values[key]; ok {
		size -= len(old)
	} else {
		size += len(key)
		keys++
	}
	if keys > m.maxKeys || size > m.maxBytes {
		return fmt.Errorf("%w: it holds %d keys and %d bytes", ErrFull, len(m.values), m.size)
	}
	value = append([]byte{}, value...) // never nil, which means absent
	m.values[key], m.size = value, size
	m.arrived(key, value)
	return nil
}
