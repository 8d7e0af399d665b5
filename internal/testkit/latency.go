package testkit

import (
	"os"
	"testing"
	"time"
)

// LongVariable is set to 1 by ./scripts/test --long.
const LongVariable = "DDPBATCH_TEST_LONG"

// IsLong tells whether tests also check how soon something happens. Elsewhere they check only that it happens, and in what order: how long
// it takes depends on what else the machine does.
func IsLong() bool { return os.Getenv(LongVariable) == "1" }

// Long skips a test that is about latency alone, unless IsLong.
func Long(t testing.TB) {
	t.Helper()
	if !IsLong() {
		t.Skip("latency: ./scripts/test --long")
	}
}

// Promptly plays what should take less than limit. Where IsLong, it plays up to ten times, and one of them must: what else the machine does
// may hold up some, and hardly all. Elsewhere it plays once, and the time does not matter.
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
