package vfstest_test

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// session does one of each operation, and stops at the first error.
func session(fsys vfs.FS) error {
	if err := fsys.Mkdir("/d"); err != nil {
		return err
	}
	f, err := fsys.Create("/d/a")
	if err != nil {
		return err
	}
	if err := f.Preallocate(5); err != nil {
		return err
	}
	if _, err := io.WriteString(f, "hello"); err != nil {
		return err
	}
	f.StartWriteback(0, 5)
	if _, err := f.Stat(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := fsys.Rename("/d/a", "/d/b"); err != nil {
		return err
	}
	if err := fsys.SyncDir("/d"); err != nil {
		return err
	}
	if _, err := fsys.ReadDir("/d"); err != nil {
		return err
	}
	if _, err := fsys.Stat("/d/b"); err != nil {
		return err
	}
	r, err := fsys.Open("/d/b")
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := r.ReadAt(make([]byte, 5), 0); err != nil {
		return err
	}
	if err := fsys.Remove("/d/b"); err != nil {
		return err
	}
	if _, err := fsys.Space("/d"); err != nil {
		return err
	}
	return fsys.RemoveDir("/d")
}

var sessionLog = []string{
	"mkdir /d", "create /d/a", "prealloc /d/a 5 bytes", "write /d/a 5 bytes", "stat /d/a", "sync /d/a", "close /d/a", "rename /d/a -> /d/b",
	"syncdir /d", "readdir /d", "stat /d/b", "open /d/b", "read /d/b 5 bytes", "remove /d/b", "space /d", "rmdir /d",
}

func lines(ops []vfstest.Op) string {
	var b strings.Builder
	for _, op := range ops {
		b.WriteString(op.String() + "\n")
	}
	return b.String()
}

func TestInjectorFailsEachOperation(t *testing.T) {
	t.Parallel()
	for k := 1; k <= len(sessionLog); k++ {
		in := vfstest.NewInjector(vfstest.NewMem(), vfstest.FailAt(k, syscall.EIO))
		wantErr(t, sessionLog[k-1], session(in), syscall.EIO)
		if got, want := lines(in.Log()), strings.Join(sessionLog[:k], "\n")+"\n"; got != want {
			t.Errorf("failing at %d, the log is\n%swant\n%s", k, got, want)
		}
	}
	in := vfstest.NewInjector(vfstest.NewMem(), vfstest.FailAt(len(sessionLog)+1, syscall.EIO))
	must(t, session(in))
}

func TestInjectorCrashStopsEverything(t *testing.T) {
	t.Parallel()
	m := vfstest.NewMem()
	in := vfstest.NewInjector(m, vfstest.CrashAfter(2)) // mkdir and create pass
	wantErr(t, "session", session(in), vfstest.ErrCrashed)
	_, err := in.Stat("/d")
	wantErr(t, "after the crash", err, vfstest.ErrCrashed)
	if got := content(t, m, "/d/a"); got != "" {
		t.Errorf("the file holds %q, want it there and empty", got)
	}
}

func TestInjectorWritesShort(t *testing.T) {
	t.Parallel()
	m := vfstest.NewMem()
	in := vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
		if op.Kind == "write" {
			return vfstest.Fault{Err: syscall.ENOSPC, Short: 3}
		}
		return vfstest.Fault{}
	})
	f, err := in.Create("/a")
	must(t, err)
	n, err := io.WriteString(f, "hello")
	wantErr(t, "short write", err, syscall.ENOSPC)
	if n != 3 || content(t, m, "/a") != "hel" {
		t.Errorf("%d bytes written, the file holds %q", n, content(t, m, "/a"))
	}
}

// TestInjectorClosesBeneath: a close that fails still closes the underlying handle.
func TestInjectorClosesBeneath(t *testing.T) {
	t.Parallel()
	in := vfstest.NewInjector(vfstest.NewMem(), vfstest.FailAt(2, syscall.EDQUOT))
	f, err := in.Create("/a")
	must(t, err)
	wantErr(t, "close", f.Close(), syscall.EDQUOT)
	_, err = f.Write([]byte("x"))
	wantErr(t, "write after close", err, fs.ErrClosed)
}

// TestInjectorAnswersFalsely: with AfterErr, each operation happens and still returns the error.
func TestInjectorAnswersFalsely(t *testing.T) {
	t.Parallel()
	for k, line := range sessionLog {
		m := vfstest.NewMem()
		in := vfstest.NewInjector(m, func(i int, _ vfstest.Op) vfstest.Fault {
			if i == k+1 {
				return vfstest.Fault{AfterErr: syscall.EIO}
			}
			return vfstest.Fault{}
		})
		wantErr(t, line, session(in), syscall.EIO)
		want := vfstest.NewMem() // a file system in which the same number of operations passed
		if err := session(vfstest.NewInjector(want, vfstest.CrashAfter(k+1))); err != nil {
			wantErr(t, line, err, vfstest.ErrCrashed)
		}
		for _, path := range []string{"/d", "/d/a", "/d/b"} {
			a, errA := m.Stat(path)
			b, errB := want.Stat(path)
			if (errA == nil) != (errB == nil) || errA == nil && a.Size() != b.Size() {
				t.Errorf("after %q that answers falsely, %s: %v, %v; want %v, %v", line, path, a, errA, b, errB)
			}
		}
	}
}

// TestInjectorHoldsUpAnOperation: an operation that waits has not happened, and others continue. It happens once it may go on.
func TestInjectorHoldsUpAnOperation(t *testing.T) {
	t.Parallel()
	m := vfstest.NewMem()
	reached, thaw, done := make(chan struct{}), make(chan struct{}), make(chan error)
	in := vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
		if op.Path != "/frozen" {
			return vfstest.Fault{}
		}
		close(reached)
		return vfstest.Fault{Wait: thaw}
	})
	go func() { done <- in.Mkdir("/frozen") }()
	<-reached
	must(t, in.Mkdir("/other"))
	_, err := m.Stat("/frozen")
	wantErr(t, "while it is held up", err, fs.ErrNotExist)
	close(thaw)
	must(t, <-done)
	_, err = m.Stat("/frozen")
	must(t, err)
}

// TestInjectorCountsOperationsWithin: a private folder behind an Injector belongs to the file system beneath, and its operations count with
// the others.
func TestInjectorCountsOperationsWithin(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "dir")
	in := vfstest.NewInjector(vfs.OS{}, nil)
	fsys := vfs.Within(in, dir)
	must(t, vfs.PrivateDir(fsys, dir))
	must(t, os.Rename(dir, dir+"-moved"))
	must(t, fsys.Mkdir(dir+"/sub"))
	_, err := os.Stat(dir + "-moved/sub")
	must(t, err)
	if got, want := lines(in.Log()), lines([]vfstest.Op{{Kind: "mkdir", Path: dir}, {Kind: "mkdir", Path: dir + "/sub"}}); got != want {
		t.Errorf("the log is %q, want %q", got, want)
	}
}
