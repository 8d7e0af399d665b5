package data

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
)

// waiting is how many of this process's files are open at path.
func waiting(t *testing.T, path string) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("needs /proc to see who waits for a lock: %v", err)
	}
	n := 0
	for _, fd := range open {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && to == path {
			n++
		}
	}
	return n
}

// failAll has several ranks prepare what fails with err, all of them before the first is done, and
// returns how many came to prepare it.
func failAll(t *testing.T, c *Cache, err error) int {
	const ranks = 6
	var tries atomic.Int32
	var all sync.WaitGroup
	look := func() (source, error) { return testSource, nil }
	lock := place(t, c, fileName(testSource)).path() + ".lock"
	begin := make(chan struct{})
	for range ranks {
		all.Go(func() {
			_, got := c.load(context.Background(), look, func() (*prepared, error) {
				tries.Add(1)
				<-begin
				return nil, err
			})
			if got == nil || got.Error() != err.Error() {
				t.Errorf("error %v, want %v", got, err)
			}
		})
	}
	testkit.Eventually(t, "all ranks wait for the lock", func() bool { return waiting(t, lock) == ranks })
	close(begin)
	all.Wait()
	return int(tries.Load())
}

// A bad cell is come upon once, not by each rank after the other, and whoever comes later looks for himself.
func TestFailureOfDataFailsAllWhoWait(t *testing.T) {
	cache := &Cache{Dir: t.TempDir()}
	for _, text := range []string{"table.csv:7:3: a bad cell", "another \xff\u2028 bad cell"} {
		text = strings.ToValidUTF8(text, "?")
		if n := failAll(t, cache, errors.New(text)); n != 1 {
			t.Errorf("%q: found %d times", text, n)
		}
	}

	// Of a source that has changed nothing is known yet.
	changed := testSource
	changed.Size++
	f := readFailure(place(t, cache, fileName(testSource)))
	if f.since(0, testSource) == nil || f.since(0, changed) != nil || f.since(f.Attempt, testSource) != nil {
		t.Errorf("%+v is a failure of what it is not, or not of what it is", f)
	}
	look := func() (source, error) { return changed, nil }
	if _, err := cache.load(t.Context(), look, func() (*prepared, error) { return sample(), nil }); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(cache.Dir, "*.failed")); err != nil || len(left) > 0 {
		t.Errorf("%v are left over, error %v", left, err)
	}
}

// What another rank may be spared is tried by each.
func TestFailureOfTheMachineIsNotKept(t *testing.T) {
	for _, err := range []error{
		context.Canceled, context.DeadlineExceeded, &os.PathError{Op: "read", Path: "table", Err: syscall.EIO},
	} {
		if n := failAll(t, &Cache{Dir: t.TempDir()}, err); n != 6 {
			t.Errorf("%v: tried %d times, want by all 6", err, n)
		}
	}
}

// Whatever lies where a failure is kept, the data is prepared.
func TestFailureThatCannotBeRead(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"empty":    func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"garbage":  func(path string) error { return os.WriteFile(path, []byte("{\"attempt\":-1}"), 0o600) },
		"too long": func(path string) error { return os.WriteFile(path, make([]byte, maxFailure+1), 0o600) },
		"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a folder": func(path string) error { return os.MkdirAll(filepath.Join(path, "in the way"), 0o700) },
	} {
		cache := &Cache{Dir: t.TempDir()}
		if err := put(failureOf(place(t, cache, fileName(testSource))).path()); err != nil {
			t.Fatal(err)
		}
		look := func() (source, error) { return testSource, nil }
		bad := errors.New("a bad cell")
		if _, err := cache.load(t.Context(), look, func() (*prepared, error) { return nil, bad }); !errors.Is(err, bad) {
			t.Errorf("%s: error %v", name, err)
		}
		if _, err := cache.load(t.Context(), look, func() (*prepared, error) { return sample(), nil }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
