package vfs_test

import (
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// TestOpenWaitsForNoPipe: a file that is not regular is refused without waiting.
func TestOpenWaitsForNoPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, socket := filepath.Join(dir, "pipe"), filepath.Join(dir, "s")
	must(t, syscall.Mkfifo(pipe, 0o600))
	l, err := net.Listen("unix", socket)
	must(t, err)
	defer l.Close()
	for path, kind := range map[string]string{pipe: "a pipe", socket: "a socket", dir: "a folder", "/dev/null": "a device"} {
		f, _, err := vfs.OpenRegular(path)
		wantErr(t, "open "+kind, err, vfs.ErrNotRegular)
		if f != nil || err != nil && !strings.HasSuffix(err.Error(), path+": not a regular file but "+kind) {
			t.Errorf("open of %s: file %v, error %v", kind, f, err)
		}
		_, _, err = vfs.OpenRegularNoLink(path)
		wantErr(t, "OpenRegularNoLink of "+kind, err, vfs.ErrNotRegular)
		g, err := vfs.OS{}.Open(path)
		wantErr(t, "OS.Open of "+kind, err, vfs.ErrNotRegular)
		if g != nil {
			t.Errorf("OS.Open of %s gives the file %v", kind, g)
		}
	}
}

// TestOpenRegularSaysWhatIsOpen: OpenRegular describes the file that is open, even behind a link, and reports that a file is gone.
func TestOpenRegularSaysWhatIsOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link := filepath.Join(dir, "f"), filepath.Join(dir, "link")
	must(t, os.WriteFile(path, []byte("abc"), 0o640))
	must(t, os.Symlink("f", link))
	for _, name := range []string{path, link} {
		f, info, err := vfs.OpenRegular(name)
		must(t, err)
		text, err := io.ReadAll(f)
		must(t, err)
		must(t, f.Close())
		if string(text) != "abc" || info.Size() != 3 || info.Mode() != 0o640 {
			t.Errorf("%s: %q, %d bytes, mode %v", name, text, info.Size(), info.Mode())
		}
	}
	f, info, err := vfs.OpenRegularNoLink(path)
	must(t, err)
	must(t, f.Close())
	if info.Size() != 3 {
		t.Errorf("%s has %d bytes", path, info.Size())
	}
	_, _, err = vfs.OpenRegularNoLink(link)
	wantErr(t, "open of a link that must be none", err, syscall.ELOOP)
	must(t, os.Remove(path))
	for _, name := range []string{path, link} {
		_, _, err := vfs.OpenRegular(name)
		wantErr(t, "open of "+name, err, fs.ErrNotExist)
	}
}

// TestOpenWaitsForALease: if another process holds a lease on a file, Open succeeds once the holder, which is asked to, gives the lease
// back.
func TestOpenWaitsForALease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(path, []byte("x"), 0o600))
	testkit.Lease(t, path)
	f, err := vfs.OS{}.Open(path)
	must(t, err)
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 2))
	must(t, err)
	if string(text) != "x" {
		t.Errorf("the file holds %q, want x", text)
	}
}

// TestOpenWaitsForNoPipeBehindALease: if a pipe meanwhile takes the name of a leased file, OpenRegular does not wait for it.
func TestOpenWaitsForNoPipeBehindALease(t *testing.T) {
	dir := t.TempDir()
	path, pipe := filepath.Join(dir, "f"), filepath.Join(dir, "pipe")
	must(t, os.WriteFile(path, []byte("x"), 0o600))
	must(t, syscall.Mkfifo(pipe, 0o600))
	testkit.LeaseUntil(t, path, func() error { return os.Rename(pipe, path) })
	f, _, err := vfs.OpenRegular(path)
	wantErr(t, "open of what was a file", err, vfs.ErrNotRegular)
	if f != nil {
		t.Errorf("it gives the file %v", f)
	}
}
