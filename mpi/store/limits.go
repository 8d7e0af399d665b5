package store

import (
	"fmt"
	"time"
)

// What a store takes. A peer that knows the secret is trusted with what is in
// the store, not with the memory of the process that runs it.
const (
	MaxKey      = 8 << 10 // bytes in a key
	MaxValue    = 8 << 20 // bytes in a value
	MaxWaitKeys = 65536   // keys in one Wait
	MaxKeys     = 1 << 20 // keys in a store
	MaxBytes    = 1 << 30 // bytes in all keys and values of a store

	MaxWaiting      = 4096     // requests of one connection that wait for keys
	MaxWaitingBytes = 64 << 20 // bytes in those requests
	MaxHandshakes   = 256      // connections that have proved nothing yet; one more ends the oldest
)

const (
	connectTimeout = 5 * time.Second       // for TCP to reach one address
	firstRetry     = 10 * time.Millisecond // pause before an address is tried again, doubled each time
	lastRetry      = 250 * time.Millisecond
	strangerRetry  = 2 * time.Second        // until an address is tried again where somebody else answered
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

func checkWait(keys []string) error {
	if len(keys) > MaxWaitKeys {
		return fmt.Errorf("%d keys are more than %d: %w", len(keys), MaxWaitKeys, ErrTooLarge)
	}
	for _, key := range keys {
		if err := checkKey(key); err != nil {
			return err
		}
	}
	return nil
}
