package store

import (
	"context"
	"fmt"
)

func (c *Client) Set(ctx context.Context, key string, value []byte) error {
	_, err := c.do(ctx, &request{op: opSet, key: key, value: value})
	return err
}

func (c *Client) Get(ctx context.Context, key string) ([]byte, error) {
	return c.do(ctx, &request{op: opGet, key: key})
}

func (c *Client) Add(ctx context.Context, key string, delta int64) (int64, error) {
	res, err := c.do(ctx, &request{op: opAdd, key: key, delta: delta})
	if err != nil {
		return 0, err
	}
	return res.number()
}

func (c *Client) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	res, err := c.do(ctx, &request{op: opCompareSet, key: key, expected: expected, value: desired})
	if err != nil {
		return nil, err
	}
	return res.optional()
}

func (c *Client) Wait(ctx context.Context, keys ...string) error {
	_, err := c.do(ctx, &request{op: opWait, keys: keys})
	return err
}

func (c *Client) Delete(ctx context.Context, key string) (bool, error) {
	res, err := c.do(ctx, &request{op: opDelete, key: key})
	if err != nil {
		return false, err
	}
	return res.bool()
}

func (c *Client) Append(ctx context.Context, key string, value []byte) error {
	_, err := c.do(ctx, &request{op: opAppend, key: key, value: value})
	return err
}

func (c *Client) Check(ctx context.Context, keys ...string) (bool, error) {
	res, err := c.do(ctx, &request{op: opCheck, keys: keys})
	if err != nil {
		return false, err
	}
	return res.bool()
}

func (c *Client) NumKeys(ctx context.Context, prefix string) (int, error) {
	res, err := c.do(ctx, &request{op: opNumKeys, key: prefix})
	if err != nil {
		return 0, err
	}
	n, err := res.number()
	return int(n), err
}

func (c *Client) List(ctx context.Context, prefix string) ([]string, error) {
	res, err := c.do(ctx, &request{op: opList, key: prefix})
	if err != nil {
		return nil, err
	}
	list, err := res.list()
	if err != nil {
		return nil, err
	}
	keys := make([]string, len(list))
	for i, key := range list {
		keys[i] = string(key)
	}
	return keys, nil
}

func (c *Client) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	res, err := c.do(ctx, &request{op: opMultiGet, keys: keys})
	if err != nil {
		return nil, err
	}
	values, err := res.list()
	if err == nil && len(values) != len(keys) {
		err = fmt.Errorf("%w: %d values for %d keys", errMalformed, len(values), len(keys))
	}
	return values, err
}

func (c *Client) MultiSet(ctx context.Context, items ...Item) error {
	_, err := c.do(ctx, &request{op: opMultiSet, items: items})
	return err
}
