package store

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// NewMemory returns an empty store in this process's memory.
func NewMemory() Store { return newMemory() }

// memory is the store itself; a Server gives clients access to one. Its exported methods are Store's. The others are for these, and
// for a Server's sessions: they do not copy values out, and most do not wait.
type memory struct {
	maxKeys, maxBytes int

	mu       sync.Mutex
	values   map[string][]byte   // a value is replaced, never changed: it may be read without mu
	queues   map[string][][]byte // values that were pushed but not popped, by key; no queue is empty
	queued   int                 // number of values in all queues
	size     int                 // bytes in all keys and values, including those of queues
	arrivals map[string]*arrival
	closing  chan struct{} // closed by Close
}

func newMemory() *memory {
	return &memory{
		maxKeys: MaxKeys, maxBytes: MaxBytes,
		values:   make(map[string][]byte),
		queues:   make(map[string][][]byte),
		arrivals: make(map[string]*arrival),
		closing:  make(chan struct{}),
	}
}

// change calls f with mu held, unless ctx has ended. The error says what was to be done with key.
func (m *memory) change(ctx context.Context, what, key string, f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := ctx.Err()
	if err == nil {
		err = f()
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, quote(key), err)
	}
	return nil
}

func (m *memory) Set(ctx context.Context, key string, value []byte) error {
	return m.change(ctx, "set", key, func() error { return m.put(key, value) })
}

func (m *memory) Add(ctx context.Context, key string, delta int64) (sum int64, err error) {
	err = m.change(ctx, "add to", key, func() (err error) {
		if sum, err = plus(m.values[key], delta); err == nil {
			err = m.put(key, decimal(sum))
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return sum, nil
}

func (m *memory) Append(ctx context.Context, key string, value []byte) error {
	return m.change(ctx, "append to", key, func() error { return m.put(key, slices.Concat(m.values[key], value)) })
}

func (m *memory) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("compare and set %s: %w", quote(key), err)
	}
	value, err := m.compareSet(key, expected, desired, anyLength)
	return bytes.Clone(value), err
}

// compareSet is CompareSet, but returns errTooLong if one of the values that it may return has more than longest bytes.
func (m *memory) compareSet(key string, expected, desired []byte, longest int) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.usable(key)
	if err == nil && max(len(m.values[key]), len(expected), len(desired)) > longest {
		return nil, errTooLong
	}
	// For Equal, an absent value, which is nil, equals an empty one. CompareSet requires that.
	if err == nil && bytes.Equal(m.values[key], expected) {
		err = m.put(key, desired)
	}
	if err != nil {
		return nil, fmt.Errorf("compare and set %s: %w", quote(key), err)
	}
	return m.values[key], nil
}

func (m *memory) Delete(ctx context.Context, key string) (was bool, err error) {
	err = m.change(ctx, "delete", key, func() (err error) {
		was, err = m.drop(key)
		return err
	})
	return was, err
}

// drop removes key and reports whether it existed. mu is held.
func (m *memory) drop(key string) (bool, error) {
	if err := m.usable(key); err != nil {
		return false, err
	}
	value, ok := m.values[key]
	if ok {
		m.size -= len(key) + len(value)
		delete(m.values, key)
	}
	return ok, nil
}

func (m *memory) Check(ctx context.Context, keys ...string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("check: %w", err)
	}
	if err := checkKeys(keys); err != nil {
		return false, fmt.Errorf("check: %w", err)
	}
	return m.present(keys, m.has)
}

func (m *memory) NumKeys(ctx context.Context, prefix string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := ctx.Err()
	if err == nil {
		err = m.usable(prefix)
	}
	if err != nil {
		return 0, fmt.Errorf("count the keys: %w", err)
	}
	if prefix == "" {
		return len(m.values), nil
	}
	n := 0
	for key := range m.values {
		if strings.HasPrefix(key, prefix) {
			n++
		}
	}
	return n, nil
}

func (m *memory) List(ctx context.Context, prefix string) (keys []string, err error) {
	if err = ctx.Err(); err == nil {
		keys, err = m.keys(prefix)
	}
	if err == nil {
		err = checkKeys(keys)
	}
	if err != nil {
		return nil, fmt.Errorf("list the keys that begin with %s: %w", quote(prefix), err)
	}
	slices.Sort(keys)
	return keys, nil
}

// keys lists the keys that begin with prefix, in any order.
func (m *memory) keys(prefix string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(prefix); err != nil {
		return nil, err
	}
	keys := []string{}
	for key := range m.values {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func (m *memory) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	values, err := m.multiGet(ctx, keys)
	for i, value := range values {
		values[i] = bytes.Clone(value)
	}
	return values, err
}

// multiGet is MultiGet without the copies.
func (m *memory) multiGet(ctx context.Context, keys []string) (values [][]byte, err error) {
	err = m.whenThere(ctx, "get several keys", keys, func() (err error) {
		values, err = m.valuesOf(keys)
		return err
	})
	return values, err
}

// peekAll returns the values of keys, nil for each absent one, and whether all keys exist.
func (m *memory) peekAll(keys []string) (values [][]byte, all bool, err error) {
	if err := checkKeys(keys); err != nil {
		return nil, false, fmt.Errorf("get several keys: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err = m.closed(); err == nil {
		values, err = m.valuesOf(keys)
	}
	if err != nil {
		return nil, false, fmt.Errorf("get several keys: %w", err)
	}
	return values, absent(keys, 0, m.has) < 0, nil
}

// valuesOf returns the values of keys, nil for each absent one. mu is held.
func (m *memory) valuesOf(keys []string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	size := 0
	for i, key := range keys {
		values[i] = m.values[key]
		size += 4 + len(values[i])
	}
	if err := checkTogether("values", size); err != nil {
		return nil, err
	}
	return values, nil
}

func (m *memory) MultiSet(ctx context.Context, items ...Item) error {
	err := ctx.Err()
	if err == nil {
		err = checkItems(items)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		err = m.closed() // also checked if there are no items
	}
	if err == nil {
		err = m.room(items)
	}
	if err != nil {
		return fmt.Errorf("set several keys: %w", err)
	}
	for _, item := range items {
		m.keep(item.Key, item.Value)
	}
	return nil
}

// Close ends all waits and drops the contents of the store.
func (m *memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed() == nil {
		close(m.closing)
		m.values, m.queues, m.queued, m.size = nil, nil, 0, 0
	}
	return nil
}

// clear empties the store, which has no queues. Calls that wait go on waiting.
func (m *memory) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed() == nil {
		m.values, m.size = make(map[string][]byte), 0
	}
}

func (m *memory) closed() error {
	select {
	case <-m.closing:
		return ErrClosed
	default:
		return nil
	}
}

// usable returns an error if the store is closed or key is too long.
func (m *memory) usable(key string) error {
	if err := m.closed(); err != nil {
		return err
	}
	return checkKey(key)
}

// put stores a copy of value and wakes the calls that wait for key. mu is held.
func (m *memory) put(key string, value []byte) error {
	if err := m.room([]Item{{key, value}}); err != nil {
		return err
	}
	m.keep(key, value)
	return nil
}

// room returns an error if the store cannot take all of items. mu is held.
func (m *memory) room(items []Item) error {
	size, keys := m.size, len(m.values)+m.queued
	var added map[string]int // bytes of the value, by key
	if len(items) > 1 {
		added = make(map[string]int, len(items))
	}
	for _, item := range items {
		if err := cmp.Or(m.usable(item.Key), checkValue(item.Value)); err != nil {
			return err
		}
		if before, ok := added[item.Key]; ok {
			size -= before
		} else if old, ok := m.values[item.Key]; ok {
			size -= len(old)
		} else {
			size += len(item.Key)
			keys++
		}
		size += len(item.Value)
		if added != nil {
			added[item.Key] = len(item.Value)
		}
	}
	return m.fits(keys, size)
}

// fitsAll is room for callers that do not hold mu.
func (m *memory) fitsAll(items []Item) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.room(items)
}

// fits returns an error if the store may not hold so many keys, including values in queues, or so many bytes. mu is held.
func (m *memory) fits(keys, size int) error {
	if keys > m.maxKeys || size > m.maxBytes {
		return fmt.Errorf("%w: it holds %d keys and %d bytes", ErrFull, len(m.values)+m.queued, m.size)
	}
	return nil
}

// keep stores a copy of value, for which there must be room, and wakes the calls that wait for key. mu is held.
func (m *memory) keep(key string, value []byte) {
	if old, ok := m.values[key]; ok {
		m.size -= len(old)
	} else {
		m.size += len(key)
	}
	value = append([]byte{}, value...) // never nil, which means absent
	m.values[key] = value
	m.size += len(value)
	m.arrived(key, value)
}

// plus adds delta to the number whose decimal digits are value; nil is 0.
func plus(value []byte, delta int64) (int64, error) {
	var number int64
	if value != nil {
		var err error
		if number, err = strconv.ParseInt(string(value), 10, 64); err != nil {
			return 0, fmt.Errorf("its value is %w", ErrNotNumber)
		}
	}
	sum := number + delta
	if delta > 0 && sum < number || delta < 0 && sum > number {
		return 0, fmt.Errorf("the sum of %d and %d is %w", number, delta, ErrNotNumber)
	}
	return sum, nil
}

func decimal(number int64) []byte { return strconv.AppendInt(nil, number, 10) }
