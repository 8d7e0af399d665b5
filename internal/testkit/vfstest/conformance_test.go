package vfstest_test

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// TestAllSystemsBehaveAsTheOS checks that all implementations behave like the operating system's file system, which is the reference.
func TestAllSystemsBehaveAsTheOS(t *testing.T) {
	t.Parallel()
	systems := map[string]func(*testing.T) (vfs.FS, string){
		"os":       func(t *testing.T) (vfs.FS, string) { return vfs.OS{}, t.TempDir() },
		"mem":      func(t *testing.T) (vfs.FS, string) { return memDir(t) },
		"injector": func(t *testing.T) (vfs.FS, string) { m, dir := memDir(t); return vfstest.NewInjector(m, nil), dir },
		"view":     func(t *testing.T) (vfs.FS, string) { m, dir := memDir(t); return vfstest.NewView(m, 1), dir },
		"held view": func(t *testing.T) (vfs.FS, string) {
			m, dir := memDir(t)
			v := vfstest.NewView(m, 1)
			v.Hold() // a client knows the changes that it makes itself
			return v, dir
		},
	}
	for name, system := range systems {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fsys, dir := system(t)
			conformance(t, fsys, dir)
		})
	}
}

func memDir(t *testing.T) (*vfstest.Mem, string) {
	m := vfstest.NewMem()
	must(t, m.Mkdir("/base"))
	return m, "/base"
}

func conformance(t *testing.T, fsys vfs.FS, dir string) {
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, fsys, at("a"), "hello")

	_, err := fsys.Create(at("a"))
	wantErr(t, "create a name that is taken", err, fs.ErrExist)
	_, err = fsys.Create(at("none/a"))
	wantErr(t, "create in no folder", err, fs.ErrNotExist)
	_, err = fsys.Create(at("a/b"))
	wantErr(t, "create below a file", err, syscall.ENOTDIR)
	_, err = fsys.Open(at("none"))
	wantErr(t, "open nothing", err, fs.ErrNotExist)
	_, err = fsys.Stat(at("none"))
	wantErr(t, "stat nothing", err, fs.ErrNotExist)
	_, err = fsys.ReadDir(at("none"))
	wantErr(t, "list nothing", err, fs.ErrNotExist)
	wantErr(t, "sync no folder", fsys.SyncDir(at("none")), fs.ErrNotExist)
	wantErr(t, "remove nothing", fsys.Remove(at("none")), fs.ErrNotExist)
	wantErr(t, "rename nothing", fsys.Rename(at("none"), at("b")), fs.ErrNotExist)

	must(t, fsys.Mkdir(at("d")))
	_, err = fsys.Open(at("d"))
	wantErr(t, "open a folder", err, vfs.ErrNotRegular)
	wantErr(t, "make a folder twice", fsys.Mkdir(at("d")), fs.ErrExist)
	wantErr(t, "make a folder in none", fsys.Mkdir(at("none/d")), fs.ErrNotExist)
	write(t, fsys, at("d/x"), "x")
	wantErr(t, "remove a full folder", fsys.RemoveDir(at("d")), fs.ErrExist)
	wantErr(t, "remove a file as a folder", fsys.RemoveDir(at("a")), syscall.ENOTDIR)
	wantErr(t, "remove no folder", fsys.RemoveDir(at("none")), fs.ErrNotExist)
	wantErr(t, "rename a file onto a folder", fsys.Rename(at("a"), at("d")), fs.ErrExist)
	folders(t, fsys, at)

	write(t, fsys, at("b"), "other")
	must(t, fsys.Rename(at("b"), at("a")))
	if got := read(t, fsys, at("a")); got != "other" {
		t.Errorf("a holds %q after the rename onto it", got)
	}
	must(t, fsys.SyncDir(dir))
	if got, want := list(t, fsys, dir), []string{"a", "d/"}; !slices.Equal(got, want) {
		t.Errorf("the folder holds %v, want %v", got, want)
	}
	must(t, fsys.Remove(at("d/x")))
	must(t, fsys.RemoveDir(at("d")))
	if got, want := list(t, fsys, dir), []string{"a"}; !slices.Equal(got, want) {
		t.Errorf("the folder holds %v, want %v", got, want)
	}
	readEnds(t, fsys, at("a"))
}

// folders checks renames of the folder d, which holds the file x, and leaves it as it was.
func folders(t *testing.T, fsys vfs.FS, at func(string) string) {
	must(t, fsys.Mkdir(at("e")))
	wantErr(t, "remove an empty folder as a file", fsys.Remove(at("e")), syscall.EISDIR)
	wantErr(t, "rename a folder onto an empty one", fsys.Rename(at("d"), at("e")), fs.ErrExist)
	wantErr(t, "rename a folder onto a file", fsys.Rename(at("d"), at("a")), syscall.ENOTDIR)
	wantErr(t, "rename a folder into itself", fsys.Rename(at("d"), at("d/y")), syscall.EINVAL)
	must(t, fsys.Rename(at("d"), at("e/d")))
	if got := read(t, fsys, at("e/d/x")); got != "x" {
		t.Errorf("e/d/x holds %q after its folder was renamed", got)
	}
	_, err := fsys.Stat(at("d/x"))
	wantErr(t, "stat below the old name", err, fs.ErrNotExist)
	must(t, fsys.Rename(at("e/d"), at("d")))
	must(t, fsys.RemoveDir(at("e")))
	must(t, fsys.Rename(at("a"), at("a")))
}

// readEnds checks what ReadAt returns at and beyond the end of a file of 5 bytes.
func readEnds(t *testing.T, fsys vfs.FS, path string) {
	f, err := fsys.Open(path)
	must(t, err)
	p := make([]byte, 4)
	if n, err := f.ReadAt(p, 3); n != 2 || !errors.Is(err, io.EOF) || string(p[:n]) != "er" {
		t.Errorf("ReadAt over the end: %d, %v", n, err)
	}
	if n, err := f.ReadAt(p, 9); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("ReadAt behind the end: %d, %v", n, err)
	}
	if _, err := f.ReadAt(p, -1); err == nil {
		t.Error("ReadAt before the start: no error")
	}
	if _, err := f.Write(p); err == nil {
		t.Error("write to a file opened for reading: no error")
	}
	must(t, f.Close())
	if _, err := f.ReadAt(p, 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
}

func write(t *testing.T, fsys vfs.FS, path, text string) vfs.File {
	t.Helper()
	f, err := fsys.Create(path)
	must(t, err)
	_, err = io.WriteString(f, text)
	must(t, err)
	info, err := f.Stat()
	must(t, err)
	if info.Size() != int64(len(text)) {
		t.Fatalf("%s has %d bytes", path, info.Size())
	}
	must(t, f.Sync())
	must(t, f.Close())
	return f
}

func read(t *testing.T, fsys vfs.FS, path string) string {
	t.Helper()
	f, err := fsys.Open(path)
	must(t, err)
	defer f.Close()
	info, err := f.Stat()
	must(t, err)
	p := make([]byte, info.Size())
	if _, err := f.ReadAt(p, 0); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return string(p)
}

func list(t *testing.T, fsys vfs.FS, dir string) []string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		names = append(names, name)
	}
	if !slices.IsSorted(names) {
		t.Errorf("not sorted: %v", names)
	}
	return names
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}
