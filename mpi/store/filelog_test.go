package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// TestTornRecordIsRepaired cuts the file at every byte: complete records count, and the next writer repairs the file.
func TestTornRecordIsRepaired(t *testing.T) {
	for cut := range len(torchFile) {
		path := tempPath(t)
		writeFile(t, path, torchFile[:cut])
		f := openFile(t, path)
		if there, err := f.Check(bounded(t), "n"); err != nil || there != (cut >= 22) {
			t.Fatalf("cut at %d: n is there: %v, %v", cut, there, err)
		}
		if err := f.Set(bounded(t), "new", []byte("1")); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for r := bufio.NewReader(bytes.NewReader(text)); err != io.EOF; { // no record is incomplete any more
			if _, _, _, err = readRecord(r, int64(len(text))); err != nil && err != io.EOF {
				t.Fatalf("cut at %d: the file holds %q: %v", cut, text, err)
			}
		}
		if value, err := openFile(t, path).Get(bounded(t), "new"); err != nil || string(value) != "1" {
			t.Fatalf("cut at %d: another process got %q, %v", cut, value, err)
		}
	}
}

func TestHostileFilesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		want    error
		message string
	}{
		"text":           {"this is a letter\n", ErrMalformedFile, "record at byte 0"},
		"huge key":       {torchFile + "\xff\xff\xff\xff", ErrMalformedFile, fmt.Sprint("record at byte ", len(torchFile))},
		"huge value":     {"\x02\x00\x00\x00/k\xff\xff\xff\x7f", ErrMalformedFile, "its value"},
		"key over limit": {"\x02\x20\x00\x00/" + strings.Repeat("k", MaxKey+1) + "\x00\x00\x00\x00", ErrTooLarge, "8193 bytes"},
		"key from torch": {torchFile + "\x03\x20\x00\x00/big" + strings.Repeat("k", MaxKey-1) + "\x00\x00\x00\x00", ErrTooLarge, `"bigkkk`},
		"value from torch": {
			torchFile + "\x04\x00\x00\x00/big\x01\x00\x80\x00" + strings.Repeat("v", MaxValue+1), ErrTooLarge,
			`its value: that of "big" has 8388609 bytes, more than 8388608`,
		},
		"count of words":  {"\x08\x00\x00\x00cleanup/\x03\x00\x00\x00two", ErrMalformedFile, `"two"`},
		"negative number": {"\x08\x00\x00\x00cleanup/\x02\x00\x00\x00-1", ErrMalformedFile, `"-1"`},
	} {
		t.Run(name, func(t *testing.T) {
			path := tempPath(t)
			writeFile(t, path, c.text)
			for call, err := range calls(bounded(t), openFile(t, path)) {
				if !errors.Is(err, c.want) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.message) {
					t.Errorf("%s: %v; want %v, the path and %q", call, err, c.want, c.message)
				}
			}
			if now, err := os.ReadFile(path); err != nil || string(now) != c.text {
				t.Errorf("the file became %q, %v", now, err)
			}
		})
	}
}

// TestForeignKeysAreHidden reads a file with the keys that later versions of PyTorch keep beside users' keys.
func TestForeignKeysAreHidden(t *testing.T) {
	path := tempPath(t)
	writeFile(t, path, torchFile+"\x09\x00\x00\x00refcount/\x01\x00\x00\x002"+strings.Repeat("\x00", 24))
	expectList(t, openFile(t, path), "c=x n=5")
}

func TestOpenFileRefuses(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	late := tempPath(t)
	f := openFile(t, late)
	if err := unix.Mkfifo(late, 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Within(t, testkit.Patience, func() {
		if err := f.Set(bounded(t), "k", nil); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("a FIFO in the file's place: %v", err)
		}
		for path, want := range map[string]string{"": "the path is empty", fifo: "not a regular file", t.TempDir(): "not a regular file"} {
			if _, err := OpenFile(path, FileConfig{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", path, err)
			}
		}
	})
	if _, err := OpenFile(tempPath(t), FileConfig{Workers: -1}); err == nil {
		t.Error("-1 workers were accepted")
	}
	if err := openFile(t, filepath.Join(t.TempDir(), "no", "store")).Set(bounded(t), "k", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a folder that is not there: %v", err)
	}
}

// TestCallsEndThoughTheLockOfAWriterIsHeld has another process hold the lock forever. Calls end with their contexts, and their errors name
// the lock.
func TestCallsEndThoughTheLockOfAWriterIsHeld(t *testing.T) {
	t.Parallel() // it waits
	path := tempPath(t)
	f := openFile(t, path)
	if err := f.Set(bounded(t), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	stopped, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer stopped.Close()
	if err := syscall.Flock(int(stopped.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = f.Set(ctx, "k", []byte("w"))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "holds the lock") {
		t.Errorf("set: %v", err)
	}
	waiting := make(chan error)
	go func() { waiting <- openFile(t, path).Wait(bounded(t), "k") }()
	stopped.Close()
	if err := <-waiting; err != nil {
		t.Errorf("wait, after the lock was free: %v", err)
	}
}

// TestDamagedFileEndsWaits damages the file while calls wait.
func TestDamagedFileEndsWaits(t *testing.T) {
	path := tempPath(t)
	f := openFile(t, path)
	waiting := make(chan error)
	go func() { _, err := f.Get(bounded(t), "k"); waiting <- err }()
	testkit.Eventually(t, "a call waits", func() bool { return f.view.waiters("k") == 1 })
	writeFile(t, path, "this is a letter\n")
	if err := <-waiting; !errors.Is(err, ErrMalformedFile) || !strings.Contains(err.Error(), `get "k"`) {
		t.Errorf("error %v", err)
	}
}

// FuzzFile opens files with arbitrary contents. They are read or refused, and the next store can read what a store has written.
func FuzzFile(f *testing.F) {
	f.Add([]byte(torchFile))
	f.Add([]byte(torchFile[:len(torchFile)-3]))
	f.Add([]byte("this is a letter\n"))
	path := filepath.Join(f.TempDir(), "store")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		one, other := openFile(t, path), openFile(t, path)
		before, err := one.List(t.Context(), "")
		if err != nil {
			return
		}
		if err := one.MultiSet(t.Context(), Item{"a", []byte("1")}, Item{"b", []byte("2")}); err != nil {
			t.Fatal(err)
		}
		got, err := other.MultiGet(t.Context(), append(before, "a", "b")...)
		if err != nil || string(got[len(before)]) != "1" || string(got[len(before)+1]) != "2" {
			t.Fatalf("the next got %q, %v", got, err)
		}
	})
}

// TestFileOfAnotherUser checks that a file of another user is refused. A symbolic link is refused, too, because it may lead to any file of
// this user.
func TestFileOfAnotherUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	target := filepath.Join(t.TempDir(), "target")
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	set := func() error {
		f, err := OpenFile(path, FileConfig{})
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Set(bounded(t), "k", []byte("v"))
	}
	if err := set(); err == nil || !strings.Contains(err.Error(), "is a link") {
		t.Errorf("by a link: %v", err)
	}
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the link leads to: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("the rest: only root can give files to another user")
	}
	if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o666), os.Chown(path, 4242, 4242)); err != nil {
		t.Fatal(err)
	}
	if err := set(); !errors.Is(err, vfs.ErrExposed) {
		t.Errorf("of another user: %v", err)
	}
}

// TestInodeIsReused removes a file that a store has read, and has another store create it anew, with records that do not end where the old
// ones did. Many file systems give the new file the old file's inode number at once.
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

// TestPinIsClosed counts the descriptors of a store's file: one between two calls, and none after Close or after the file was removed.
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

// descriptors counts the descriptors that this process has of the file at path.
func descriptors(t *testing.T, path string) (n int) {
	t.Helper()
	const table = "/proc/self/fd"
	links, err := os.ReadDir(table)
	if err != nil {
		t.Skip("descriptors can be counted on Linux only:", err)
	}
	for _, link := range links {
		// a descriptor that was closed in the meantime has no name
		if to, err := os.Readlink(filepath.Join(table, link.Name())); err == nil && strings.TrimSuffix(to, " (deleted)") == path {
			n++
		}
	}
	return n
}
