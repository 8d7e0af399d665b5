package store

import (
	"cmp"
	"fmt"
	"time"
)

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
	MaxTorchClients = 8192      // places of clients: PyTorch 1.13's take two, as they open two connections; one more is closed
	MaxTorchSilent  = 8192      // connections that have asked nothing yet, without 1.13's second ones; one more ends the oldest
	MaxTorchBytes   = 256 << 20 // bytes in queries that are arriving or wait for keys; one for which there is no room ends its connection
	MaxTorchReplies = 128 << 20 // bytes in replies that are being sent; one for which there is no room waits for its turn
)

// maxFile bounds a File's log: it only grows, and who opens it reads all of it.
const maxFile = 2 << 30

// LastRefusal is how often in a row, some seconds apart, another run's store may refuse a client at the one address that it knows, before that
// is the last word: it may be about to end.
const LastRefusal = 3

const (
	connectTimeout = 5 * time.Second       // for TCP to reach one address
	firstRetry     = 10 * time.Millisecond // pause before an address is tried again, doubled each time
	lastRetry      = 250 * time.Millisecond
	strangerRetry  = 2 * time.Second        // until an address is tried again where somebody else answered
	torchQueryTime = 30 * time.Second       // for a query that has begun to arrive, and for a reply to be taken once it is its turn
	cancelGrace    = 250 * time.Millisecond // how long a cancelled call waits to hear what became of it
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
