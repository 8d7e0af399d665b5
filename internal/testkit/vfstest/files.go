package vfstest

import (
	"errors"
	"io/fs"
	"math"

	"ddpbatch/internal/vfs"
)

// T is the part of testing.TB that this package needs. rapid's T has it too.
type T interface {
	Helper()
	Fatal(args ...any)
}

func must(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// New returns a disk in memory with the directory /run, which survives a crash.
func New(t T) *Mem {
	t.Helper()
	m := NewMem()
	must(t, m.Mkdir("/run"))
	must(t, m.SyncDir("/"))
	return m
}

// Read returns the content of a file.
func Read(t T, fsys vfs.FS, path string) []byte {
	t.Helper()
	data, _, err := vfs.ReadFile(fsys, path, math.MaxInt64)
	must(t, err)
	return data
}

// Put replaces or creates a file. Its content is synced, but not its name.
func Put(t T, fsys vfs.FS, path string, data []byte) {
	t.Helper()
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	f, err := fsys.Create(path)
	must(t, err)
	_, err = f.Write(data)
	must(t, errors.Join(err, f.Sync(), f.Close()))
}
