package data

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// The lock of a process that is killed while it prepares goes to the next.
func TestOnceSurvivesAKilledHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	victim := startHelper(t, "hold", path)
	if got := victim.line(); got != "held" {
		t.Fatalf("the first holder says %q", got)
	}
	next := startHelper(t, "hold", path)
	tried, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Once(tried, path, never, func() error { return errors.New("two have the lock") }); !errors.Is(err, context.Canceled) {
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
		first <- Once(t.Context(), path, never, func() error {
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
		second <- Once(ctx, path, func() (bool, error) { asked <- struct{}{}; return false, nil }, func() error { return nil })
	}()
	<-asked
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one that names the lock", err)
	}

	// Who waits takes over from who fails.
	third := make(chan error)
	go func() { third <- Once(t.Context(), path, never, func() error { return nil }) }()
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
	err := Once(t.Context(), filepath.Join(t.TempDir(), "lock"),
		func() (bool, error) { asked++; return asked == 2, nil },
		func() error { return errors.New("prepared again what another has prepared") })
	if err != nil || asked != 2 {
		t.Errorf("asked %d times, error %v", asked, err)
	}
	broken := errors.New("broken")
	if err := Once(t.Context(), "", func() (bool, error) { return false, broken }, nil); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of ready", err)
	}
	if err := Once(t.Context(), "/nowhere/lock", never, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want one about the folder", err)
	}
}

// A lock's file that a file server holds a lease on, for a client of it, is waited for as the lock is.
func TestOnceUnderLease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Lease(t, path)
	prepared := false
	if err := Once(t.Context(), path, never, func() error { prepared = true; return nil }); err != nil || !prepared {
		t.Errorf("prepared %v, error %v", prepared, err)
	}
}
