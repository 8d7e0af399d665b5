package testkit

import (
	"os"
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

// LongVariable is set to 1 by ./scripts/test --long.
const LongVariable = "DDPBATCH_TEST_LONG"

// IsLong reports whether tests also check what need not be checked each time, and how soon something happens. Otherwise they check only
// that it happens and in what order, since other work on the machine may delay it.
func IsLong() bool { return os.Getenv(LongVariable) == "1" }

// Promptly plays what should take less than limit. If IsLong, it plays up to ten times, and one of them must take less: other work on the
// machine may delay some of them, but hardly all. Otherwise it plays once, and the time does not matter.
func Promptly(t testing.TB, limit time.Duration, play func() (took time.Duration)) {
	t.Helper()
	var took []time.Duration
	for range 10 {
		took = append(took, play())
		if !IsLong() || took[len(took)-1] < limit || t.Failed() {
			return
		}
	}
	t.Errorf("took %v, never less than %v", took, limit)
}
