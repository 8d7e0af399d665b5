package testkit

import (
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long a test waits for something that should happen: longer than the work takes on any machine, but less than the minute
// that package launch allows a file system. Only a test that hangs takes as long.
const Patience = 45 * time.Second

// Eventually waits until ok returns true, for up to Patience.
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

// IsLong reports whether tests make checks that are not needed each time, and check how soon something happens. Otherwise they check only
// that it happens and in what order, because other work on the machine may delay it.
func IsLong() bool { return os.Getenv(LongVariable) == "1" }

// Promptly checks that play takes less than limit. If IsLong, it plays up to ten times, and one of them must take less: other work on the
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

// Each runs f concurrently as every rank, and returns their errors by rank.
func Each(size int, f func(rank int) error) []error {
	errs := make([]error, size)
	var tasks sync.WaitGroup
	for rank := range size {
		tasks.Go(func() { errs[rank] = f(rank) })
	}
	tasks.Wait()
	return errs
}

// Journal is a log that may be read while it is written. The zero Journal is empty and ready to use.
type Journal struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (j *Journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// String returns everything that was written.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Lines returns the lines that were written, each with its newline.
func (j *Journal) Lines() []string {
	lines := strings.SplitAfter(j.String(), "\n")
	return lines[:len(lines)-1]
}

// Logger returns a logger that writes to j.
func (j *Journal) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }
