package data

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
)

func TestOncePreparesOnceOverProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prepared")
	var all []*helper
	for range 6 {
		all = append(all, startHelper(t, "once", path))
	}
	for _, h := range all {
		h.wait()
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "prepared\n" {
		t.Errorf("the file holds %q, error %v; want one line", text, err)
	}
}

// If a process is killed while it prepares, the next process gets the lock.
func TestOnceSurvivesAKilledHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	victim := startHelper(t, "hold", path)
	if got := victim.line(); got != "held" {
		t.Fatalf("the first holder says %q", got)
	}
	next := startHelper(t, "hold", path)
	tried, cancel := context.WithCancel(t.Context())
	cancel()
	if err := onceAt(tried, path, never, func() error { return errors.New("two have the lock") }); !errors.Is(err, context.Canceled) {
		t.Fatalf("with a holder that lives: error %v", err)
	}
	victim.kill()
	if got := next.line(); got != "held" {
		t.Errorf("the second holder says %q", got)
	}
	next.in.Close()
	next.wait()
}

func TestOnceWaitEndsWithContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, release := make(chan struct{}), make(chan struct{})
	first := make(chan error)
	go func() {
		first <- onceAt(t.Context(), path, never, func() error {
			close(held)
			<-release
			return errors.New("could not prepare")
		})
	}()
	<-held
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error)
	asked := make(chan struct{}, 1)
	go func() {
		second <- onceAt(ctx, path, func() (bool, error) { asked <- struct{}{}; return false, nil }, func() error { return nil })
	}()
	<-asked
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one that names the lock", err)
	}

	// If the holder fails to prepare, a waiting call gets the lock.
	third := make(chan error)
	go func() { third <- onceAt(t.Context(), path, never, func() error { return nil }) }()
	close(release)
	if err := <-first; err == nil || err.Error() != "could not prepare" {
		t.Errorf("the first: error %v", err)
	}
	testkit.Within(t, testkit.Patience, func() {
		if err := <-third; err != nil {
			t.Errorf("the third: error %v", err)
		}
	})
}

func TestOnceAsksAgainAfterTheWait(t *testing.T) {
	asked := 0
	err := onceAt(t.Context(), filepath.Join(t.TempDir(), "lock"),
		func() (bool, error) { asked++; return asked == 2, nil },
		func() error { return errors.New("prepared again what another has prepared") })
	if err != nil || asked != 2 {
		t.Errorf("asked %d times, error %v", asked, err)
	}
	broken := errors.New("broken")
	if err := onceAt(t.Context(), "", func() (bool, error) { return false, broken }, nil); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of ready", err)
	}
	if err := onceAt(t.Context(), "/nowhere/lock", never, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want one about the folder", err)
	}
}

// If a file server holds a lease on the lock's file for one of its clients, once waits for it as it waits for the lock.
func TestOnceWaitsForALease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Lease(t, path)
	prepared := false
	if err := onceAt(t.Context(), path, never, func() error { prepared = true; return nil }); err != nil || !prepared {
		t.Errorf("prepared %v, error %v", prepared, err)
	}
}

// A call that waits for some seconds logs once which process it waits for, by the name in the lock's file, and again if the name changes.
// The error that ends the wait has that name, too.
func TestOnceNamesWhomItWaitsFor(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "lock")
	holder := startHelper(t, "hold", path)
	if got := holder.line(); got != "held" {
		t.Fatalf("the holder says %q", got)
	}
	who := fmt.Sprintf("process %d of %s", holder.cmd.Process.Pid, host)
	for limit, want := range map[time.Duration]int{warnAfter / 2: 0, warnAfter * 3: 1, time.Hour / 2: 1, time.Hour: 2} {
		var journal testkit.Journal
		synctest.Test(t, func(t *testing.T) { // hours pass at once
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if want == 2 {
				time.AfterFunc(limit/2, func() {
					if err := os.WriteFile(path, []byte("process 7 of n2"), 0o600); err != nil {
						t.Error(err)
					}
				})
			}
			wait := fileLock{path, func(flags int) (*os.File, error) { return os.OpenFile(path, flags, 0o600) }, journal.Logger()}
			err := once(ctx, wait, never, func() error { return errors.New("two have the lock") })
			if !errors.Is(err, context.DeadlineExceeded) || want < 2 && !strings.Contains(err.Error(), who) {
				t.Errorf("after %v: error %v, want one that names %s", limit, err, who)
			}
		})
		if err := os.WriteFile(path, []byte(who), 0o600); err != nil {
			t.Fatal(err)
		}
		log := journal.String()
		all, first, second := strings.Count(log, path), strings.Count(log, who), strings.Count(log, "process 7 of n2")
		if all != want || first != min(want, 1) || second != max(want-1, 0) {
			t.Errorf("after %v it was logged %d times, want %d: %s", limit, all, want, log)
		}
	}
	holder.kill()

	// Text in the lock's file that no process would have written is not taken for a name and is not overwritten.
	for _, text := range []string{"", "process 1 of \x1b[2J", "process 0 of n1", "process 1 of n1\n", strings.Repeat("9", 4000)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := holderOf(f); got != unsigned {
			t.Errorf("%q: %q", text, got)
		}
		f.Close()
		if err := onceAt(t.Context(), path, never, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || text != "" && string(got) != text || text == "" && !signature().Match(got) {
			t.Errorf("%q: the lock's file holds %q, error %v", text, got, err)
		}
	}
}

// onceAt calls once with the lock at path.
func onceAt(ctx context.Context, path string, ready func() (bool, error), prepare func() error) error {
	open := func(flags int) (*os.File, error) { return os.OpenFile(path, flags, 0o600) }
	return once(ctx, fileLock{path: path, open: open}, ready, prepare)
}
