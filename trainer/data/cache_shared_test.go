package data

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// waiting returns how many of this process's open files are the file at path.
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

// failAll has several ranks load data whose preparation fails with err. All of them wait for the lock before the first one fails.
// It returns how many of them prepared the data.
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

// If one rank finds a bad cell, the ranks that wait fail with its error and do not read the data again. A later load does.
func TestFailureOfDataFailsAllWhoWait(t *testing.T) {
	cache := &Cache{Dir: t.TempDir()}
	for _, text := range []string{"table.csv:7:3: a bad cell", "another \xff\u2028 bad cell"} {
		text = strings.ToValidUTF8(text, "?")
		if n := failAll(t, cache, errors.New(text)); n != 1 {
			t.Errorf("%q: found %d times", text, n)
		}
	}

	// The failure does not count for a source that has changed since.
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

// A failure that another rank may not have, such as a canceled context or an I/O error, is not kept: each rank tries for itself.
func TestFailureOfTheMachineIsNotKept(t *testing.T) {
	for _, err := range []error{
		context.Canceled, context.DeadlineExceeded, &os.PathError{Op: "read", Path: "table", Err: syscall.EIO},
	} {
		if n := failAll(t, &Cache{Dir: t.TempDir()}, err); n != 6 {
			t.Errorf("%v: tried %d times, want by all 6", err, n)
		}
	}
}

// Data is prepared even if something unreadable lies at the path where a failure is kept.
func TestUnreadableFailureIsIgnored(t *testing.T) {
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

// stranger is a user ID without an account.
const stranger = 4242

// give gives a file, a link or a folder to another user.
func give(t testing.TB, path string) error {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to another user")
	}
	return os.Lchown(path, stranger, stranger)
}

// sharedArea returns a folder that all users may write to, in which each user may remove and rename only their own files.
func sharedArea(t testing.TB) string {
	t.Helper()
	testkit.EnterTemp(t)
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777|fs.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// prepareSample prepares sample's data.
func prepareSample() (*prepared, error) { return sample(), nil }

func lookAtSource() (source, error) { return testSource, nil }

// A cache's folder, file or lock that another user owns, may write to or may exchange is an error. Nobody trains on it or waits for it.
func TestCacheOfAnotherUserIsNotTrusted(t *testing.T) {
	for _, test := range []struct {
		name   string
		expose func(t *testing.T, dir, path string) error
	}{
		{"a folder that others may write to", func(_ *testing.T, dir, _ string) error { return os.Chmod(dir, 0o777) }},
		{"a folder that others may write to, sticky",
			func(_ *testing.T, dir, _ string) error { return os.Chmod(dir, 0o777|fs.ModeSticky) }},
		{"a folder of another user", func(t *testing.T, dir, _ string) error { return give(t, dir) }},
		{"a link of another user above", func(t *testing.T, dir, _ string) error {
			above := filepath.Dir(dir)
			return errors.Join(os.Rename(above, above+"2"), os.Symlink(above+"2", above), give(t, above))
		}},
		{"a file of another user", func(t *testing.T, _, path string) error { return give(t, path) }},
		{"a file that others may write to", func(_ *testing.T, _, path string) error { return os.Chmod(path, 0o620) }},
		{"a lock of another user", func(t *testing.T, _, path string) error {
			return errors.Join(os.Remove(path), give(t, path+".lock"))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(sharedArea(t), "user", "cache")
			if err := errors.Join(os.Mkdir(filepath.Dir(dir), 0o700), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
				t.Fatal(err)
			}
			cache := &Cache{Dir: dir}
			if _, err := cache.load(t.Context(), lookAtSource, prepareSample); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, fileName(testSource))
			for file, mode := range map[string]fs.FileMode{dir: fs.ModeDir | 0o700, path: 0o600, path + ".lock": 0o600} {
				if info, err := os.Stat(file); err != nil || info.Mode() != mode {
					t.Errorf("%s: %v, %v; want mode %v", file, info, err, mode)
				}
			}
			if err := test.expose(t, dir, path); err != nil {
				t.Fatal(err)
			}
			if _, err := cache.load(t.Context(), lookAtSource, prepareSample); !errors.Is(err, vfs.ErrExposed) {
				t.Errorf("error %v, want %v", err, vfs.ErrExposed)
			}
		})
	}
}

// A kept failure is ignored if its file belongs to another user or if others may write to it.
func TestFailureOfAnotherUserIsNotTrusted(t *testing.T) {
	cache := &Cache{Dir: t.TempDir()}
	at := place(t, cache, fileName(testSource))
	bad := errors.New("a bad cell")
	if _, err := cache.load(t.Context(), lookAtSource, func() (*prepared, error) { return nil, bad }); !errors.Is(err, bad) {
		t.Fatalf("error %v", err)
	}
	path := failureOf(at).path()
	if f := readFailure(at); f.since(0, testSource) == nil {
		t.Fatalf("%s holds %+v", path, f)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.Chmod(path, 0o622); err != nil {
		t.Fatal(err)
	}
	if f := readFailure(at); f != (failure{}) {
		t.Errorf("of a file that others may write to: %+v", f)
	}
	if err := errors.Join(os.Chmod(path, 0o600), give(t, path)); err != nil {
		t.Fatal(err)
	}
	if f := readFailure(at); f != (failure{}) {
		t.Errorf("of another user's file: %+v", f)
	}
}

// If the cache's folder is moved away and replaced by another user's while data is prepared, the data is still written to the moved folder.
func TestCacheStaysHeldThoughItIsMoved(t *testing.T) {
	area := sharedArea(t)
	dir, moved := filepath.Join(area, "cache"), filepath.Join(area, "moved")
	cache := &Cache{Dir: dir}
	p, err := cache.load(t.Context(), lookAtSource, func() (*prepared, error) {
		err := errors.Join(os.Rename(dir, moved), os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777))
		if err == nil && os.Geteuid() == 0 {
			err = give(t, dir)
		}
		return sample(), err
	})
	if err != nil || p.Classes != sample().Classes {
		t.Errorf("%+v, error %v", p, err)
	}
	if planted, err := os.ReadDir(dir); len(planted) > 0 || err != nil {
		t.Errorf("in the other user's folder are %v, error %v", planted, err)
	}
	var names []string
	entries, err := os.ReadDir(moved)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if name := fileName(testSource); strings.Join(names, " ") != name+" "+name+".lock" {
		t.Errorf("in the cache's folder are %q", names)
	}
}
