package vfs_test

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// TestOpenWaitsForLease: a file that another process holds a lease on opens once that is given back, as the holder is asked to.
func TestOpenWaitsForLease(t *testing.T) {
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

// TestOpenWaitsForNoPipeBehindALease: what takes the name of a leased file meanwhile is not waited for, if it is a pipe.
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
