package auth

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
)

func TestKeyFileIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "key")
	first, err := KeyFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if first.IsZero() {
		t.Error("the key is zero")
	}
	if second, err := KeyFile(path); err != nil || second != first {
		t.Errorf("read again: same %v, error %v", second == first, err)
	}
	for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700, filepath.Dir(filepath.Dir(path)): 0o700} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, error %v, want %v", p, info.Mode().Perm(), err, want)
		}
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left beside the key: %v", entries)
	}
}

func TestKeyFileManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "key")
	keys := make([]Secret, 32)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = KeyFile(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, k := range keys {
		if k != keys[0] {
			t.Errorf("caller %d got another key", i)
		}
	}
}

func TestKeyFileRefuses(t *testing.T) {
	good := counting().Hex() + "\n"
	write := func(t *testing.T, path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, path string)
		want    string
	}{
		"group may read":  {func(t *testing.T, p string) { write(t, p, good, 0o640) }, "its mode is 0640"},
		"others may read": {func(t *testing.T, p string) { write(t, p, good, 0o604) }, "its mode is 0604"},
		"group may write": {func(t *testing.T, p string) { write(t, p, good, 0o620) }, "its mode is 0620"},
		"link to a readable one": {func(t *testing.T, p string) {
			write(t, p+".target", good, 0o644)
			if err := os.Symlink(p+".target", p); err != nil {
				t.Fatal(err)
			}
		}, "its mode is 0644"},
		"link to nothing": {func(t *testing.T, p string) {
			if err := os.Symlink(p+".absent", p); err != nil {
				t.Fatal(err)
			}
		}, "no such file"},
		"folder": {func(t *testing.T, p string) {
			if err := os.Mkdir(p, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "it is no regular file but a folder"},
		"fifo": {func(t *testing.T, p string) {
			if err := syscall.Mkfifo(p, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "it is no regular file but a pipe"},
		"empty":     {func(t *testing.T, p string) { write(t, p, "", 0o600) }, "0 characters"},
		"two lines": {func(t *testing.T, p string) { write(t, p, good+"\n", 0o600) }, "65 characters"},
		"huge":      {func(t *testing.T, p string) { write(t, p, strings.Repeat("0", 1<<20), 0o600) }, "128 characters"},
		"another owner": {func(t *testing.T, p string) {
			write(t, p, good, 0o600)
			if err := os.Chown(p, 12345, -1); err != nil {
				t.Skipf("only root can give a file away: %v", err)
			}
		}, "user 12345 owns it"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			c.prepare(t, path)
			s, err := KeyFile(path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "key file "+path+": ") {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
			if !s.IsZero() {
				t.Error("a key came with the error")
			}
		})
	}
}

// A key file that a file server holds a lease on, for a client of it, is read once that is given back.
func TestKeyFileUnderLease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	want, err := KeyFile(path)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Lease(t, path)
	if got, err := KeyFile(path); err != nil || got != want {
		t.Errorf("same %v, error %v", got == want, err)
	}
}

func TestKeyFileFollowsLinkToPrivateFile(t *testing.T) {
	dir := t.TempDir()
	want, err := KeyFile(filepath.Join(dir, "real"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if got, err := KeyFile(filepath.Join(dir, "link")); err != nil || got != want {
		t.Errorf("same %v, error %v", got == want, err)
	}
}

func TestKeyFileWhereNoneCanBeMade(t *testing.T) {
	blocker := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := KeyFile(filepath.Join(blocker, "key")); err == nil {
		t.Error("a key was made below a file")
	}
}
