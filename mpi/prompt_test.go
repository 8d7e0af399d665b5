package mpi

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// soon is how long a misuse of reference/collectives.md 3.1 may stay unnoticed.
const soon = time.Second

// again is what a try returns that tells nothing.
const again = time.Duration(-1)

// promptly is testkit.Promptly for what must be over soon. A try that tells nothing is played again.
func promptly(t *testing.T, play func() (took time.Duration)) {
	t.Helper()
	testkit.Promptly(t, soon, func() time.Duration {
		for range 100 {
			if took := play(); took != again || t.Failed() {
				return took
			}
		}
		t.Error("none of 100 tries told anything: the ranks that are there do not answer")
		return 0
	})
}

// starved tells whether a rank's error says that another does not answer, which is a goroutine here: on a busy machine it may not have had
// the time. Then that try tells nothing.
func starved(errs ...error) bool {
	return slices.ContainsFunc(errs, func(err error) bool { return err != nil && strings.Contains(err.Error(), "it does not answer") })
}

// stopwatch measures from the moment at which the last rank makes its call. The zero stopwatch is ready.
type stopwatch struct {
	mu   sync.Mutex
	last time.Time
}

// called notes that a rank is about to make its call.
func (s *stopwatch) called() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
}

// sinceLast is how long ago the last rank was.
func (s *stopwatch) sinceLast() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.last)
}
