package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
)

func (f *File) Set(ctx context.Context, key string, value []byte) error {
	return f.write(ctx, "set "+quote(key), func() ([]Item, error) { return []Item{{key, value}}, nil })
}

func (f *File) Append(ctx context.Context, key string, value []byte) error {
	return f.write(ctx, "append to "+quote(key), func() ([]Item, error) {
		old, err := f.view.peek(key)
		return []Item{{key, slices.Concat(old, value)}}, err
	})
}

func (f *File) Add(ctx context.Context, key string, delta int64) (sum int64, err error) {
	err = f.write(ctx, "add to "+quote(key), func() ([]Item, error) {
		old, err := f.view.peek(key)
		if err == nil {
			sum, err = plus(old, delta)
		}
		return []Item{{key, decimal(sum)}}, err
	})
	if err != nil {
		return 0, err
	}
	return sum, nil
}

func (f *File) CompareSet(ctx context.Context, key string, expected, desired []byte) (there []byte, err error) {
	err = f.write(ctx, "compare and set "+quote(key), func() ([]Item, error) {
		old, err := f.view.peek(key)
		if err != nil || !bytes.Equal(old, expected) {
			there = bytes.Clone(old)
			return nil, err
		}
		there = append([]byte{}, desired...)
		return []Item{{key, desired}}, nil
	})
	if err != nil {
		return nil, err
	}
	return there, nil
}

func (f *File) MultiSet(ctx context.Context, items ...Item) error {
	return f.write(ctx, "set several keys", func() ([]Item, error) { return items, checkItems(items) })
}

func (f *File) Delete(ctx context.Context, key string) (was bool, err error) {
	err = f.change(ctx, "delete "+quote(key), func() ([]byte, error) {
		old, err := f.view.peek(key)
		if was = old != nil; err != nil || !was {
			return nil, err
		}
		return appendRecord(nil, deleteMark+key, nil), nil
	})
	if err != nil {
		return false, err
	}
	return was, nil
}

func (f *File) Get(ctx context.Context, key string) (value []byte, err error) {
	err = f.wait(ctx, "get "+quote(key), func(ctx context.Context) (err error) {
		value, err = f.view.Get(ctx, key)
		return err
	})
	return value, err
}

func (f *File) MultiGet(ctx context.Context, keys ...string) (values [][]byte, err error) {
	err = f.wait(ctx, "get several keys", func(ctx context.Context) (err error) {
		values, err = f.view.MultiGet(ctx, keys...)
		return err
	})
	return values, err
}

func (f *File) Wait(ctx context.Context, keys ...string) error {
	return f.wait(ctx, "wait", func(ctx context.Context) error { return f.view.Wait(ctx, keys...) })
}

func (f *File) Check(ctx context.Context, keys ...string) (bool, error) {
	if err := f.read(ctx); err != nil {
		return false, fmt.Errorf("check: %w", err)
	}
	return f.view.Check(ctx, keys...)
}

func (f *File) NumKeys(ctx context.Context, prefix string) (int, error) {
	if err := f.read(ctx); err != nil {
		return 0, fmt.Errorf("count the keys: %w", err)
	}
	return f.view.NumKeys(ctx, prefix)
}

func (f *File) List(ctx context.Context, prefix string) ([]string, error) {
	if err := f.read(ctx); err != nil {
		return nil, fmt.Errorf("list the keys: %w", err)
	}
	return f.view.List(ctx, prefix)
}
