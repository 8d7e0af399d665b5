package testkit

import (
	"testing"
	"time"
)

// Patience is how long a test waits for what should happen: minutes of work on no machine, and less than the minute that package launch
// gives a file system. Only a test that hangs takes as long.
const Patience = 45 * time.Second

// Eventually waits until ok, for up to Patience.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(Patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within %v: %s", Patience, what)
		}
	}
}

// Within runs f and fails the test if that takes longer than limit.
func Within(t testing.TB, limit time.Duration, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("not done after %v", limit)
	}
}
