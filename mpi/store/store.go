package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
)

// Store is a key-value store through which ranks find each other. Its methods are safe for concurrent use. A key is any text, and a
// value any bytes; both are copied, in and out. When ctx ends first, the error matches ctx's. After Close, the error matches
// ErrClosed.
type Store interface {
	// Set makes value the value of key.
	Set(ctx context.Context, key string, value []byte) error

	// Get waits until key exists and returns its value. When ctx ends first, the error is a *WaitError.
	Get(ctx context.Context, key string) ([]byte, error)

	// Add adds delta to the decimal number at key (0 if absent) and returns the sum, which becomes the key's value.
	Add(ctx context.Context, key string, delta int64) (int64, error)

	// CompareSet sets key to desired if its value is expected. If the key is absent and expected is empty, it creates the key. It
	// returns the key's value afterwards, or nil if it has none.
	CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error)

	// Wait returns when every key exists, at one moment. When ctx ends first, the error is a *WaitError, which lists the missing
	// ones.
	Wait(ctx context.Context, keys ...string) error

	// Delete removes key and reports whether it existed.
	Delete(ctx context.Context, key string) (bool, error)

	// Append appends value to key's value (empty if absent).
	Append(ctx context.Context, key string, value []byte) error

	// Check reports, without waiting, whether every key exists.
	Check(ctx context.Context, keys ...string) (bool, error)

	// NumKeys counts the keys that begin with prefix.
	NumKeys(ctx context.Context, prefix string) (int, error)

	// List returns the keys that begin with prefix, in the order of their bytes. If there are more than MaxRequestKeys of them, or
	// more than MaxTogether bytes, the error is ErrTooLarge: keys are never left out silently.
	List(ctx context.Context, prefix string) ([]string, error)

	// MultiGet waits until every key exists at one moment and returns their values at that moment, in the order of keys. If they
	// have more than MaxTogether bytes, the error is ErrTooLarge. When ctx ends first, the error is a *WaitError.
	MultiGet(ctx context.Context, keys ...string) ([][]byte, error)

	// MultiSet sets several keys at one moment: all of them or, if it returns an error, none. Of two items with the same key, the
	// later one counts.
	MultiSet(ctx context.Context, items ...Item) error

	// Close closes the store, or this connection to it. Waiting calls return ErrClosed.
	Close() error
}

// Item is a key with its value.
type Item struct {
	Key   string
	Value []byte
}

var (
	_ Store = (*memory)(nil)
	_ Store = (*prefixed)(nil)
	_ Store = (*Server)(nil)
	_ Store = (*Client)(nil)
	_ Store = (*File)(nil)
)

var (
	// ErrSilent means that the peer accepted the connection but proved nothing in time: it is a slow store, or another program.
	ErrSilent = errors.New("the connection was accepted, and nothing was proved")

	// ErrClosed is the error of every call after Close, and of calls that wait when Close is called.
	ErrClosed = errors.New("the store is closed")

	// ErrTooLarge means that a key, a value or a list of keys exceeds its limit.
	ErrTooLarge = errors.New("too large")

	// ErrFull means that the store holds MaxKeys keys or MaxBytes bytes.
	ErrFull = errors.New("the store is full")

	// ErrNotNumber means that Add found a value that is not a decimal number of 64 bits, or that the sum would not be one.
	ErrNotNumber = errors.New("not a decimal number of 64 bits")

	// ErrMalformedFile means that a File's file has contents that no store writes.
	ErrMalformedFile = errors.New("not a store's file")

	// ErrBusy means that too many requests of this connection wait for keys: MaxWaiting, or MaxWaitingBytes.
	ErrBusy = errors.New("too many requests wait on this connection")
)

// WaitError lists what a Get, MultiGet or Wait was waiting for when its context ended.
type WaitError struct {
	Keys    []string // the keys that were waited for
	Absent  int      // how many of them did not exist; also 0 if the server could not be asked any more
	Missing []string // the first few of those
	Err     error    // the context's error
}

const (
	namedKeys  = 8  // the most keys that an error names
	namedBytes = 64 // the most bytes of each
)

func (e *WaitError) Error() string {
	if len(e.Keys) == 1 || e.Absent == 0 {
		return fmt.Sprintf("waiting for %s: %v", listKeys(e.Keys, len(e.Keys)), e.Err)
	}
	return fmt.Sprintf("waiting for %d keys, missing %s: %v", len(e.Keys), listKeys(e.Missing, e.Absent), e.Err)
}

// Unwrap returns the context's error.
func (e *WaitError) Unwrap() error { return e.Err }

// LostError means that a client's connection has ended. It is the error of every pending and every later call.
type LostError struct {
	Addr string // of the server
	Err  error  // io.EOF if the server closed the connection
}

func (e *LostError) Error() string {
	return fmt.Sprintf("the connection to the store at %s is lost: %v", e.Addr, e.Err)
}

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Err }

// listKeys formats the first few of several keys.
func listKeys(keys []string, total int) string {
	if total == 0 {
		return "no keys"
	}
	names := make([]string, min(len(keys), namedKeys))
	for i := range names {
		names[i] = quote(keys[i])
	}
	text := strings.Join(names, ", ")
	if more := total - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// quote formats a key for an error, and shortens a long one.
func quote(key string) string {
	if len(key) > namedBytes {
		return fmt.Sprintf("%q...", key[:namedBytes])
	}
	return fmt.Sprintf("%q", key)
}

// These are a store's limits. A peer that knows the secret is trusted with the contents of the store, but not with the memory of
// the process that runs it.
const (
	MaxKey         = 8 << 10   // bytes in a key
	MaxValue       = 8 << 20   // bytes in a value
	MaxRequestKeys = 128 << 10 // keys in one Wait, Check, List, MultiGet or MultiSet
	MaxTogether    = 16 << 20  // bytes in all keys and values of one of these, with 4 more for each
	MaxKeys        = 1 << 20   // keys in a store, and values in its queues
	MaxBytes       = 1 << 30   // bytes in all keys and values of a store

	MaxWaiting      = 4096     // requests of one connection that wait for keys
	MaxWaitingBytes = 64 << 20 // bytes in those requests
	MaxHandshakes   = 256      // connections that have proved nothing yet; another one ends the oldest

	// These hold for a server that serves PyTorch's clients, which prove nothing. Connections may also take at most a quarter of
	// the files that the process may open.
	MaxTorchClients = 8192      // slots of clients; those of PyTorch 1.13 take two, as they open two connections; another client is closed
	MaxTorchSilent  = 8192      // connections that have sent no query yet, without 1.13's second ones; another one ends the oldest
	MaxTorchBytes   = 256 << 20 // bytes in queries that are arriving or wait for keys; a query without room ends its connection
	MaxTorchReplies = 128 << 20 // bytes in replies that are being sent; a reply without room waits
)

func checkKey(key string) error {
	if len(key) > MaxKey {
		return fmt.Errorf("the key has %d bytes, more than %d: %w", len(key), MaxKey, ErrTooLarge)
	}
	return nil
}

func checkValue(value []byte) error {
	if len(value) > MaxValue {
		return fmt.Errorf("the value has %d bytes, more than %d: %w", len(value), MaxValue, ErrTooLarge)
	}
	return nil
}

func checkKeys(keys []string) error {
	if len(keys) > MaxRequestKeys {
		return fmt.Errorf("%d keys are more than %d: %w", len(keys), MaxRequestKeys, ErrTooLarge)
	}
	size := 0
	for _, key := range keys {
		if err := checkKey(key); err != nil {
			return err
		}
		size += 4 + len(key)
	}
	return checkTogether("keys", size)
}

func checkItems(items []Item) error {
	if len(items) > MaxRequestKeys {
		return fmt.Errorf("%d keys are more than %d: %w", len(items), MaxRequestKeys, ErrTooLarge)
	}
	size := 0
	for _, item := range items {
		if err := cmp.Or(checkKey(item.Key), checkValue(item.Value)); err != nil {
			return err
		}
		size += 4 + len(item.Key) + 4 + len(item.Value)
	}
	return checkTogether("keys and values", size)
}

func checkTogether(what string, size int) error {
	if size > MaxTogether {
		return fmt.Errorf("the %s have %d bytes together, more than %d: %w", what, size, MaxTogether, ErrTooLarge)
	}
	return nil
}
