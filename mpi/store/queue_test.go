package store

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestQueueAgainstSlices drives queues and slices with the same random calls.
func TestQueueAgainstSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, model, held := newMemory(), map[string][][]byte{}, 0
		m.maxKeys, m.maxBytes = 5, 60
		for range rapid.IntRange(0, 60).Draw(t, "calls") {
			key, value := someKey.Draw(t, "key"), someValue.Draw(t, "value")
			switch rapid.IntRange(0, 2).Draw(t, "call") {
			case 0:
				queued, bytes := 1, len(key)+len(value)
				for key, values := range model {
					for _, value := range values {
						queued, bytes = queued+1, bytes+len(key)+len(value)
					}
				}
				full := queued > m.maxKeys || bytes > m.maxBytes
				if err := m.push(key, value); errors.Is(err, ErrFull) != full || !full && err != nil {
					t.Fatalf("push of %d bytes to %d: %v", len(value), held, err)
				}
				if !full {
					model[key] = append(model[key], value)
				}
			case 1:
				n, got, err := m.pop(key, anyLength)
				if n != len(model[key]) || err != nil {
					t.Fatalf("pop of %d: %d, %v", len(model[key]), n, err)
				}
				if n > 0 {
					if !bytes.Equal(got, model[key][0]) {
						t.Fatalf("popped %q, want %q", got, model[key][0])
					}
					model[key] = model[key][1:]
				}
			case 2:
				if n, err := m.queueLen(key); n != len(model[key]) || err != nil {
					t.Fatalf("length %d, %v; want %d", n, err, len(model[key]))
				}
			}
		}
		for key, values := range model {
			for range values {
				if n, _, err := m.pop(key, anyLength); n == 0 || err != nil {
					t.Fatalf("pop: %d, %v", n, err)
				}
			}
		}
		if len(m.queues) != 0 || m.queued != 0 || m.size != 0 {
			t.Fatalf("left over: %d queues, %d values, %d bytes", len(m.queues), m.queued, m.size)
		}
	})
}

// TestQueueLimits pushes what is too large, to a store that has no room, and to one that is closed.
func TestQueueLimits(t *testing.T) {
	m := newMemory()
	if err := m.push(strings.Repeat("k", MaxKey+1), nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a key that is too large: %v", err)
	}
	if err := m.push("q", make([]byte, MaxValue+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a value that is too large: %v", err)
	}
	m.maxKeys = 2
	for i, want := range []error{nil, nil, ErrFull} {
		if err := m.push("q", nil); !errors.Is(err, want) {
			t.Errorf("push %d: %v", i, err)
		}
	}
	if err := m.set("k", nil); !errors.Is(err, ErrFull) {
		t.Errorf("a key beside the queue: %v", err)
	}
	m.Close()
	_, _, popErr := m.pop("q", anyLength)
	_, lenErr := m.queueLen("q")
	for _, err := range []error{m.push("q", nil), popErr, lenErr} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after close: %v", err)
		}
	}
}
