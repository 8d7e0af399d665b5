package vfs_test

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// TestOSPreallocateKeepsTheLength: the length of the file is what was written, and not what was reserved.
func TestOSPreallocateKeepsTheLength(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a")
	f, err := vfs.OS{}.Create(path)
	must(t, err)
	must(t, f.Preallocate(1<<20))
	must(t, f.Preallocate(0))
	_, err = io.WriteString(f, "hello")
	must(t, err)
	f.StartWriteback(0, 5)
	f.StartWriteback(1<<40, -1) // an impossible range is only a hint, too
	must(t, f.Sync())
	info, err := f.Stat()
	must(t, err)
	if info.Size() != 5 {
		t.Errorf("the file has %d bytes, want 5", info.Size())
	}
	must(t, f.Close())
	if f.Preallocate(1) == nil {
		t.Error("reserving for a closed file: no error")
	}
	if got := string(vfstest.Read(t, vfs.OS{}, path)); got != "hello" {
		t.Errorf("the file holds %q", got)
	}
}

// TestOSPreallocateReportsNoSpace asks for more space than any disk has, and for more than most file systems allow in one file. A request
// that only exceeds this disk would fill it for a moment, for all of its users.
func TestOSPreallocateReportsNoSpace(t *testing.T) {
	t.Parallel()
	f, err := vfs.OS{}.Create(filepath.Join(t.TempDir(), "a"))
	must(t, err)
	defer f.Close()
	err = f.Preallocate(1 << 62)
	if err == nil {
		t.Skip("the file system takes any reservation")
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) || errno != syscall.ENOSPC && errno != syscall.EFBIG && errno != syscall.EDQUOT {
		t.Errorf("reserving 4 EiB: %v, want one of ENOSPC, EFBIG, EDQUOT", err)
	}
}

func TestOSSpaceFindsRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	space, err := vfs.OS{}.Space(dir)
	must(t, err)
	if space.Free > space.Total || space.Type == "" {
		t.Errorf("the file system of %s: %+v", dir, space)
	}
	_, err = vfs.OS{}.Space(filepath.Join(dir, "none"))
	wantErr(t, "space of nothing", err, fs.ErrNotExist)
	if space, err := (vfs.OS{}).Space("/proc"); err == nil && space.Type != "0x9fa0" {
		t.Errorf("/proc is %q, want statfs(2)'s number 0x9fa0 in hex", space.Type)
	}
}
