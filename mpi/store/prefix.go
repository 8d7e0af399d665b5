package store

import (
	"context"
	"strings"
)

// Prefix returns a view of s in which every key stands for prefix + "/" + key.
// Closing the view does nothing, and s stays open. Errors name keys with the prefix.
func Prefix(s Store, prefix string) Store { return &prefixed{s, prefix + "/"} }

type prefixed struct {
	store  Store
	prefix string
}

func (p *prefixed) Set(ctx context.Context, key string, value []byte) error {
	return p.store.Set(ctx, p.prefix+key, value)
}

func (p *prefixed) Get(ctx context.Context, key string) ([]byte, error) {
	return p.store.Get(ctx, p.prefix+key)
}

func (p *prefixed) Add(ctx context.Context, key string, delta int64) (int64, error) {
	return p.store.Add(ctx, p.prefix+key, delta)
}

func (p *prefixed) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	return p.store.CompareSet(ctx, p.prefix+key, expected, desired)
}

func (p *prefixed) Wait(ctx context.Context, keys ...string) error {
	return p.store.Wait(ctx, p.full(keys)...)
}

func (p *prefixed) Delete(ctx context.Context, key string) (bool, error) {
	return p.store.Delete(ctx, p.prefix+key)
}

func (p *prefixed) Append(ctx context.Context, key string, value []byte) error {
	return p.store.Append(ctx, p.prefix+key, value)
}

func (p *prefixed) Check(ctx context.Context, keys ...string) (bool, error) {
	return p.store.Check(ctx, p.full(keys)...)
}

// NumKeys counts the keys of the view.
func (p *prefixed) NumKeys(ctx context.Context, prefix string) (int, error) {
	return p.store.NumKeys(ctx, p.prefix+prefix)
}

// List lists the keys of the view, without the prefix.
func (p *prefixed) List(ctx context.Context, prefix string) ([]string, error) {
	keys, err := p.store.List(ctx, p.prefix+prefix)
	for i, key := range keys {
		keys[i] = strings.TrimPrefix(key, p.prefix)
	}
	return keys, err
}

func (p *prefixed) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	return p.store.MultiGet(ctx, p.full(keys)...)
}

func (p *prefixed) MultiSet(ctx context.Context, items ...Item) error {
	full := make([]Item, len(items))
	for i, item := range items {
		full[i] = Item{p.prefix + item.Key, item.Value}
	}
	return p.store.MultiSet(ctx, full...)
}

func (p *prefixed) Close() error { return nil }

func (p *prefixed) full(keys []string) []string {
	full := make([]string, len(keys))
	for i, key := range keys {
		full[i] = p.prefix + key
	}
	return full
}
