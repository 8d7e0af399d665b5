package store

import "context"

// Store is the key-value store that ranks meet at. Methods are safe for
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
