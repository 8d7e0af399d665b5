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

	// Close ends the store, or this connection to it. Whoever waits gets ErrClosed.
	Close() error
}

var (
	_ Store = (*memory)(nil)
	_ Store = (*prefixed)(nil)
	_ Store = (*Server)(nil)
	_ Store = (*Client)(nil)
)
