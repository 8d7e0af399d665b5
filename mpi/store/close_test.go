package store

import (
	"context"
	"errors"
	"testing"

	"ddpbatch/internal/testkit"
)

func TestEndedContext(t *testing.T) {
	conform(t, func(t *testing.T, s Store, m *memory, prefix string) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for name, err := range calls(ctx, s) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want context.Canceled", name, err)
			}
		}
		if _, err := m.peek(prefix + "k"); err != nil {
			t.Fatal(err)
		}
		if len(m.values) != 0 {
			t.Errorf("the store holds %d keys", len(m.values))
		}
	})
}

func TestClose(t *testing.T) {
	conform(t, func(t *testing.T, s Store, m *memory, prefix string) {
		if prefix != "" {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.Set(bounded(t), "k", nil); err != nil {
				t.Errorf("closing a view closed the store: %v", err)
			}
			return
		}
		waits := make(chan error, 2)
		go func() { _, err := s.Get(bounded(t), "k"); waits <- err }()
		go func() { waits <- s.Wait(bounded(t), "k") }()
		testkit.Eventually(t, "two calls wait", func() bool { return m.waiters("k") == 2 })
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := <-waits; !errors.Is(err, ErrClosed) {
				t.Errorf("a waiting call got %v", err)
			}
		}
		for name, err := range calls(bounded(t), s) {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%s after Close: %v", name, err)
			}
		}
	})
}
