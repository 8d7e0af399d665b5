package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
)

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
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("count the keys: %w", err)
	}
	return m.count(prefix)
}

func (m *memory) count(prefix string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(prefix); err != nil {
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

func (m *memory) List(ctx context.Context, prefix string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list the keys: %w", err)
	}
	return m.list(prefix)
}

func (m *memory) list(prefix string) ([]string, error) {
	keys, err := m.keys(prefix)
	if err == nil {
		err = checkKeys(keys)
	}
	if err != nil {
		return nil, fmt.Errorf("list the keys that begin with %s: %w", quote(prefix), err)
	}
	slices.Sort(keys)
	return keys, nil
}

// keys are those that begin with prefix, in any order.
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

// peekAll returns the values of keys, nil for each that is absent, and whether none is.
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

// valuesOf returns the values of keys, nil for each that is absent. mu is held.
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
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("set several keys: %w", err)
	}
	return m.multiSet(items)
}

func (m *memory) multiSet(items []Item) error {
	if err := checkItems(items); err != nil {
		return fmt.Errorf("set several keys: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.closed() // also where there is no item
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
