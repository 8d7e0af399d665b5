package store

import "context"

// Prefix returns a view of s in which every key stands for prefix + "/" + key.
// Closing the view does nothing: s stays whoever's it was. Errors name keys in full.
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
	full := make([]string, len(keys))
	for i, key := range keys {
		full[i] = p.prefix + key
	}
	return p.store.Wait(ctx, full...)
}

func (p *prefixed) Delete(ctx context.Context, key string) (bool, error) {
	return p.store.Delete(ctx, p.prefix+key)
}

func (p *prefixed) Close() error { return nil }
