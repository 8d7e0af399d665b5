package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
)

// Store is a key-value store through which ranks find each other. Methods are safe for
// concurrent use. A key is any text, a value any bytes; both are copied, in
// and out. When ctx ends first, the error matches ctx's; after Close it
// matches ErrClosed.
type Store interface {
	// Set makes value the value of key.
	Set(ctx context.Context, key string, value []byte) error

	// Get waits until key is there and returns its value. When ctx ends first,
	// the error is a *WaitError.
	Get(ctx context.Context, key string) ([]byte, error)

	// Add adds delta to the decimal number at key (absent: 0) and returns the
	// sum, which is then the key's value.
	Add(ctx context.Context, key string, delta int64) (int64, error)

	// CompareSet sets key to desired if its value is expected (absent and
	// expected empty: it is created), and returns the value that is there
	// afterwards: nil where there is none.
	CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error)

	// Wait returns when every key is there, at one moment. When ctx ends first,
	// the error is a *WaitError, which tells the missing ones.
	Wait(ctx context.Context, keys ...string) error

	// Delete removes key and tells whether it was there.
	Delete(ctx context.Context, key string) (bool, error)

	// Append adds value at the end of key's value (absent: empty).
	Append(ctx context.Context, key string, value []byte) error

	// Check tells, without waiting, whether every key is there.
	Check(ctx context.Context, keys ...string) (bool, error)

	// NumKeys counts the keys that begin with prefix.
	NumKeys(ctx context.Context, prefix string) (int, error)

	// List returns the keys that begin with prefix, in the order of their bytes. More than
	// MaxRequestKeys of them, or MaxTogether bytes, are ErrTooLarge: none are left out unsaid.
	List(ctx context.Context, prefix string) ([]string, error)

	// MultiGet waits until every key is there at one moment and returns their values of that moment, in
	// the order of keys; more than MaxTogether bytes are ErrTooLarge. When ctx ends first, the error is a *WaitError.
	MultiGet(ctx context.Context, keys ...string) ([][]byte, error)

	// MultiSet sets several keys at one moment: all of them, or, with an error, none. Of two items with one key
	// the later one counts.
	MultiSet(ctx context.Context, items ...Item) error

	// Close ends the store, or this connection to it. Whoever waits gets ErrClosed.
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
	// ErrSilent says that somebody took the connection and proved nothing in time: a store that is slow, or no store.
	ErrSilent = errors.New("somebody took the connection, and nothing was proved")

	// ErrClosed is what every call gets after Close, and what Close makes of those that wait.
	ErrClosed = errors.New("the store is closed")

	// ErrTooLarge says that a key, a value or a list of keys is over its limit.
	ErrTooLarge = errors.New("too large")

	// ErrFull says that the store holds MaxKeys keys or MaxBytes bytes.
	ErrFull = errors.New("the store is full")

	// ErrNotNumber says that Add found a value that is no decimal number of 64
	// bits, or that the sum would be none.
	ErrNotNumber = errors.New("not a decimal number of 64 bits")

	// ErrMalformedFile says that a File's file holds what no store writes.
	ErrMalformedFile = errors.New("not a store's file")

	// ErrBusy says that too many requests of this connection wait for keys:
	// MaxWaiting, or MaxWaitingBytes.
	ErrBusy = errors.New("too many requests wait on this connection")
)

// WaitError says what a Get or Wait was waiting for when its context ended.
type WaitError struct {
	Keys    []string // what it wanted
	Absent  int      // how many of them were not there; 0 too where the server could not be asked any more
	Missing []string // the first few of those
	Err     error    // the context's error
}

const (
	namedKeys  = 8  // how many keys an error names
	namedBytes = 64 // and how many bytes of each
)

func (e *WaitError) Error() string {
	if len(e.Keys) == 1 || e.Absent == 0 {
		return fmt.Sprintf("waiting for %s: %v", listKeys(e.Keys, len(e.Keys)), e.Err)
	}
	return fmt.Sprintf("waiting for %d keys, missing %s: %v", len(e.Keys), listKeys(e.Missing, e.Absent), e.Err)
}

// Unwrap gives the context's error.
func (e *WaitError) Unwrap() error { return e.Err }

// LostError says that a client's connection ended. Every call that was under
// way or comes later gets it.
type LostError struct {
	Addr string // of the server
	Err  error  // io.EOF where the server closed the connection
}

func (e *LostError) Error() string {
	return fmt.Sprintf("the connection to the store at %s is lost: %v", e.Addr, e.Err)
}

// Unwrap gives the cause.
func (e *LostError) Unwrap() error { return e.Err }

// listKeys shows the first few of several keys.
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

// quote shows a key in an error, shortened where it is long.
func quote(key string) string {
	if len(key) > namedBytes {
		return fmt.Sprintf("%q...", key[:namedBytes])
	}
	return fmt.Sprintf("%q", key)
}

// What a store takes. A peer that knows the secret is trusted with what is in
// the store, not with the memory of the process that runs it.
const (
	MaxKey         = 8 << 10   // bytes in a key
	MaxValue       = 8 << 20   // bytes in a value
	MaxRequestKeys = 128 << 10 // keys in one Wait, Check, List, MultiGet or MultiSet
	MaxTogether    = 16 << 20  // bytes in all keys and values of one of these, with 4 more for each
	MaxKeys        = 1 << 20   // keys in a store, and values in its queues
	MaxBytes       = 1 << 30   // bytes in all keys and values of a store

	MaxWaiting      = 4096     // requests of one connection that wait for keys
	MaxWaitingBytes = 64 << 20 // bytes in those requests
	MaxHandshakes   = 256      // connections that have proved nothing yet; one more ends the oldest

	// Of a server that speaks PyTorch's wire, which proves nothing; of connections also no more than a quarter of the
	// files that the process may open:
	MaxTorchClients = 8192      // slots of clients: PyTorch 1.13's take two, as they open two connections; one more is closed
	MaxTorchSilent  = 8192      // connections that have asked nothing yet, without 1.13's second ones; one more ends the oldest
	MaxTorchBytes   = 256 << 20 // bytes in queries that are arriving or wait for keys; one for which there is no room ends its connection
	MaxTorchReplies = 128 << 20 // bytes in replies that are being sent; one for which there is no room waits for its turn
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
