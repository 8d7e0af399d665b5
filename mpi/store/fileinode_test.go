package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// TestInodeIsReused removes a file that a store has read, and has another process make it anew, with records that do
// not end where the old ones did. Many file systems give the new one the number of the old at once.
func TestInodeIsReused(t *testing.T) {
	for round := range 20 {
		path := tempPath(t)
		a, b := openFile(t, path), openFile(t, path)
		if err := a.Set(bounded(t), "old", []byte("1")); err != nil {
			t.Fatal(err)
		}
		read, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := b.Set(bounded(t), "rank/123", []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if made, err := os.Stat(path); err != nil || os.SameFile(read, made) {
			t.Fatalf("round %d: the file that a holds open and the new one are not told apart (%v)", round, err)
		}
		if err := a.Set(bounded(t), "a", []byte("x")); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*File{a, b, openFile(t, path)} {
			expectList(t, s, "a=x rank/123=hello")
		}
	}
}

// TestPinIsClosed counts the descriptors of a store's file: one between two calls, and none after Close or when the
// file is gone.
func TestPinIsClosed(t *testing.T) {
	path := tempPath(t)
	f := openFile(t, path)
	expectOpen := func(when string, want int) {
		t.Helper()
		if n := descriptors(t, path); n != want {
			t.Errorf("%s: %d descriptors, want %d", when, n, want)
		}
	}
	expectOpen("before the first call", 0)
	for range 3 {
		if err := f.Set(bounded(t), "k", nil); err != nil {
			t.Fatal(err)
		}
		expectList(t, f, "k=")
	}
	expectOpen("after some calls", 1)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expectList(t, f, "")
	expectOpen("when the file is gone", 0)
	if err := f.Set(bounded(t), "k", nil); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error)
	go func() { waiting <- f.Wait(bounded(t), "never") }()
	testkit.Eventually(t, "a call waits", func() bool { return f.view.waiters("never") == 1 })
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	<-waiting
	expectOpen("after Close", 0)
}

// descriptors counts those that this process has of the file at path.
func descriptors(t *testing.T, path string) (n int) {
	t.Helper()
	const table = "/proc/self/fd"
	links, err := os.ReadDir(table)
	if err != nil {
		t.Skip("descriptors can be counted on Linux only:", err)
	}
	for _, link := range links {
		// one that was closed meanwhile has no name
		if to, err := os.Readlink(filepath.Join(table, link.Name())); err == nil && strings.TrimSuffix(to, " (deleted)") == path {
			n++
		}
	}
	return n
}
