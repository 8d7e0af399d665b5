package replace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func names(t *testing.T, fsys vfs.FS, dir string) []string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// before returns a file system with one file that is durable.
func before(t *testing.T) *vfstest.Mem {
	t.Helper()
	mem := vfstest.NewMem()
	if err := mem.Mkdir("d"); err != nil {
		t.Fatal(err)
	}
	if err := mem.SyncDir("."); err != nil {
		t.Fatal(err)
	}
	if err := File(t.Context(), mem, "d/f", text("old")); err != nil {
		t.Fatal(err)
	}
	return mem
}

// Whichever operation fails, exactly one file exists, the complete old one or the complete new one. It is the new one if File returned no
// error.
func TestEveryFaultLeavesOneWholeFile(t *testing.T) {
	broken := errors.New("broken")
	for k := 1; ; k++ {
		mem := before(t)
		in := vfstest.NewInjector(mem, vfstest.FailAt(k, broken))
		err := File(t.Context(), in, "d/f", text("new"))
		if err == nil && string(vfstest.Read(t, mem, "d/f")) != "new" {
			t.Errorf("operation %d: no error, and the old file", k)
		}
		if got := string(vfstest.Read(t, mem, "d/f")); got != "old" && got != "new" {
			t.Errorf("operation %d: the file holds %q", k, got)
		}
		if list := names(t, mem, "d"); !slices.Equal(list, []string{"f"}) {
			t.Errorf("operation %d: the folder holds %v", k, list)
		}
		if k > len(in.Log()) {
			return // no operation has failed
		}
		// The check of what existed before only helps to explain an error of the rename.
		if op := in.Log()[k-1]; err == nil && op.Kind != "remove" && !(op.Kind == "stat" && op.Path == "d/f") {
			t.Errorf("operation %d, %s, failed in silence", k, in.Log()[k-1])
		}
	}
}

// After a power cut at any moment, either the old file or the new one exists. It is the new one if File had returned.
func TestEveryCrashLeavesOneWholeFile(t *testing.T) {
	for k := 0; ; k++ {
		mem := before(t)
		in := vfstest.NewInjector(mem, vfstest.CrashAfter(k))
		err := File(t.Context(), in, "d/f", text("new"))
		after := mem.CrashClone(0, rand.New(rand.NewPCG(1, uint64(k))))
		got := string(vfstest.Read(t, after, "d/f"))
		if got != "new" && (got != "old" || err == nil) {
			t.Errorf("crash after operation %d: %q, error %v", k, got, err)
		}
		if err == nil {
			return
		}
	}
}

// A rename whose reply is lost has succeeded, and is not an error. A rename that failed with the same error has not succeeded.
func TestLostReplyIsNotAFailure(t *testing.T) {
	for _, happens := range []bool{true, false} {
		mem := before(t)
		in := vfstest.NewInjector(mem, func(_ int, op vfstest.Op) (f vfstest.Fault) {
			if strings.HasPrefix(op.String(), "rename") {
				f.Err = fs.ErrNotExist
				if happens {
					f = vfstest.Fault{AfterErr: fs.ErrNotExist}
				}
			}
			return f
		})
		err := File(t.Context(), in, "d/f", text("newer"))
		want := map[bool]string{true: "newer", false: "old"}[happens]
		if got := string(vfstest.Read(t, mem, "d/f")); got != want || (err == nil) != happens {
			t.Errorf("the file holds %q, error %v", got, err)
		}
		if list := names(t, mem, "d"); !slices.Equal(list, []string{"f"}) {
			t.Errorf("the folder holds %v", list)
		}
	}
}

func TestCancelledReplaceKeepsTheOldFile(t *testing.T) {
	mem := before(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := File(ctx, mem, "d/f", text("new")); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if got := string(vfstest.Read(t, mem, "d/f")); got != "old" {
		t.Errorf("the file holds %q", got)
	}
}

// A file system that wrote less than it reported is noticed.
func TestFileChecksTheLength(t *testing.T) {
	err := File(t.Context(), shortFS{before(t)}, "d/f", text("new"))
	if !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("error %v, want a short write", err)
	}
}

// shortFS drops the last byte of every write, and does not report it.
type shortFS struct{ vfs.FS }

func (s shortFS) Create(name string) (vfs.File, error) {
	f, err := s.FS.Create(name)
	return shortFile{f}, err
}

type shortFile struct{ vfs.File }

func (s shortFile) Write(p []byte) (int, error) {
	_, err := s.File.Write(p[:len(p)-1])
	return len(p), err
}

// TestOldFileIsNotTakenForTheNew: if the rename has not happened, an old file of the same size is not taken for the new one.
func TestOldFileIsNotTakenForTheNew(t *testing.T) {
	mem := before(t)
	in := vfstest.NewInjector(mem, func(_ int, op vfstest.Op) vfstest.Fault {
		if op.Kind == "rename" {
			if err := mem.Remove(op.Path); err != nil { // as a cleanup by another process would
				t.Fatal(err)
			}
		}
		return vfstest.Fault{}
	})
	if err := File(t.Context(), in, "d/f", text("new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, the file holds %q", err, string(vfstest.Read(t, mem, "d/f")))
	}
}

// TestDirIsDurable: a folder that Dir has made survives a power cut together with its parents, even if the folder existed already and was
// not synced.
func TestDirIsDurable(t *testing.T) {
	for _, there := range []bool{false, true} {
		m := vfstest.NewMem()
		if there { // its name is not yet durable
			if err := m.Mkdir("/a"); err != nil {
				t.Fatal(err)
			}
		}
		path := "/a/b/c"
		if there {
			path = "/a"
		}
		if err := Dir(m, path); err != nil {
			t.Fatal(err)
		}
		if _, err := m.CrashClone(0, rand.New(rand.NewPCG(1, 1))).Stat(path); err != nil {
			t.Error(err)
		}
	}
	refusing := vfstest.NewInjector(vfstest.NewMem(), func(_ int, op vfstest.Op) vfstest.Fault {
		if op.Kind == "mkdir" && op.Path == "/a" {
			return vfstest.Fault{Err: syscall.EACCES}
		}
		return vfstest.Fault{}
	})
	if err := Dir(refusing, "/a/b"); !errors.Is(err, syscall.EACCES) {
		t.Errorf("Dir below a folder that cannot be made: %v", err)
	}
}

// TestOptionsHoldOnARealFileSystem checks on a real file system the options that other packages use.
func TestOptionsHoldOnARealFileSystem(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	put := func(o Options, s string) error { return FileWith(t.Context(), vfs.OS{}, path, o, text(s)) }
	want := func(s string, mode fs.FileMode) {
		t.Helper()
		data, err := os.ReadFile(path)
		info, _ := os.Stat(path)
		if err != nil || string(data) != s || info.Mode() != mode {
			t.Errorf("the file holds %q, %v, mode %v; want %q and %v", data, err, info.Mode(), s, mode)
		}
		if list := names(t, vfs.OS{}, dir); !slices.Equal(list, []string{"f"}) {
			t.Errorf("the folder holds %v", list)
		}
	}
	if err := put(Options{Mode: 0o700, New: true, Size: 3}, "one"); err != nil {
		t.Fatal(err)
	}
	want("one", 0o700)
	if err := put(Options{Mode: 0o600, Keep: true}, "two"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Keep: %v", err)
	}
	want("one", 0o700)
	refused := errors.New("refused")
	if err := put(Options{BeforeRename: func() error { return refused }}, "three"); !errors.Is(err, refused) {
		t.Errorf("BeforeRename: %v", err)
	}
	want("one", 0o700)
	in, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	o := Options{Temp: ".f.tmp", NoSync: true}
	log := vfstest.NewInjector(vfs.Held(in), nil)
	if err := FileWith(t.Context(), log, path, o, Bytes([]byte("four"))); err != nil {
		t.Fatal(err)
	}
	want("four", 0o600)
	for _, op := range log.Log() {
		if op.Kind == "sync" || op.Kind == "syncdir" {
			t.Errorf("with NoSync: %v", op)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := put(Options{Mode: 0o600, Keep: true}, "five"); err != nil {
		t.Errorf("Keep, of nothing: %v", err)
	}
	want("five", 0o600)
}
