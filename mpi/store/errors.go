package store

import (
	"errors"
	"fmt"
	"strings"

	"ddpbatch/internal/auth"
)

// ErrOtherSecret says that the store at an address is the one that was looked for, by what it says of itself, and has another secret. It
// matches auth.ErrRefused.
var ErrOtherSecret error = otherSecret{}

type otherSecret struct{}

func (otherSecret) Error() string {
	return "this very run refused this side's secret, which is another one: give all the same DDPBATCH_SECRET, or the same key file"
}

func (otherSecret) Unwrap() error { return auth.ErrRefused }

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
		return fmt.Sprintf("waiting for %s: %v", list(e.Keys, len(e.Keys)), e.Err)
	}
	return fmt.Sprintf("waiting for %d keys, missing %s: %v", len(e.Keys), list(e.Missing, e.Absent), e.Err)
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

// list shows the first few of several keys.
func list(keys []string, total int) string {
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
