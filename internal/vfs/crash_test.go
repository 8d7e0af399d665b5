package vfs_test

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"

	"ddpbatch/internal/vfs"
)

// crashed is m after a power cut that keeps nothing, or everything, that was not synced.
func crashed(m *vfs.Mem, percent int) *vfs.Mem {
	return m.CrashClone(percent, rand.New(rand.NewPCG(1, 2)))
}

func TestCrashKeepsOnlyWhatIsSynced(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(t *testing.T, m *vfs.Mem)
		path string
		want string // "-": not there
		all  string // what a crash leaves that happens to keep everything
	}{
		{"file and folder synced", func(t *testing.T, m *vfs.Mem) {
			write(t, m, "/d/a", "one")
			must(t, m.SyncDir("/d"))
		}, "/d/a", "one", "one"},
		{"folder not synced", func(t *testing.T, m *vfs.Mem) { write(t, m, "/d/a", "one") }, "/d/a", "-", "one"},
		{"file not synced", func(t *testing.T, m *vfs.Mem) {
			f, err := m.Create("/d/a")
			must(t, err)
			_, err = io.WriteString(f, "one")
			must(t, err)
			must(t, m.SyncDir("/d"))
		}, "/d/a", "", "one"},
		{"written again after the sync", func(t *testing.T, m *vfs.Mem) {
			f, err := m.Create("/d/a")
			must(t, err)
			_, err = io.WriteString(f, "one")
			must(t, err)
			must(t, f.Sync())
			_, err = io.WriteString(f, "two")
			must(t, err)
			must(t, m.SyncDir("/d"))
		}, "/d/a", "one", "onetwo"},
		{"rename not synced", func(t *testing.T, m *vfs.Mem) {
			write(t, m, "/d/a", "old")
			must(t, m.SyncDir("/d"))
			write(t, m, "/d/b", "new")
			must(t, m.Rename("/d/b", "/d/a"))
		}, "/d/a", "old", "new"},
		{"removal not synced", func(t *testing.T, m *vfs.Mem) {
			write(t, m, "/d/a", "old")
			must(t, m.SyncDir("/d"))
			must(t, m.Remove("/d/a"))
		}, "/d/a", "old", "-"},
		{"removal synced", func(t *testing.T, m *vfs.Mem) {
			write(t, m, "/d/a", "old")
			must(t, m.SyncDir("/d"))
			must(t, m.Remove("/d/a"))
			must(t, m.SyncDir("/d"))
		}, "/d/a", "-", "-"},
		{"folder itself not synced", func(t *testing.T, m *vfs.Mem) {
			must(t, m.Mkdir("/d/e"))
			write(t, m, "/d/e/a", "one")
			must(t, m.SyncDir("/d/e"))
		}, "/d/e/a", "-", "one"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := vfs.NewMem()
			must(t, m.Mkdir("/d"))
			must(t, m.SyncDir("/"))
			test.do(t, m)
			if got := content(t, crashed(m, 0), test.path); got != test.want {
				t.Errorf("nothing unsynced kept: %q, want %q", got, test.want)
			}
			if got := content(t, crashed(m, 100), test.path); got != test.all {
				t.Errorf("all unsynced kept: %q, want %q", got, test.all)
			}
		})
	}
}

// TestCrashTearsFiles checks that a part is kept block by block, and that one seed gives one
// outcome.
func TestCrashTearsFiles(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	f, err := m.Create("/a")
	must(t, err)
	_, err = io.WriteString(f, strings.Repeat("x", 4096))
	must(t, err)
	must(t, m.SyncDir("/"))
	torn := map[string]bool{}
	for seed := range uint64(32) {
		text := content(t, m.CrashClone(50, rand.New(rand.NewPCG(seed, 0))), "/a")
		if again := content(t, m.CrashClone(50, rand.New(rand.NewPCG(seed, 0))), "/a"); again != text {
			t.Fatalf("seed %d gives two outcomes", seed)
		}
		for i := 0; i+512 <= len(text); i += 512 {
			if block := text[i : i+512]; block != strings.Repeat("x", 512) && block != strings.Repeat("\x00", 512) {
				t.Fatalf("seed %d: the block at %d is neither kept nor zeros", seed, i)
			}
		}
		torn[text] = true
	}
	if len(torn) < 16 {
		t.Errorf("32 seeds tore the file in only %d ways", len(torn))
	}
	if got := content(t, m, "/a"); got != strings.Repeat("x", 4096) {
		t.Error("the crash changed the file system that it was taken from")
	}
}

func content(t *testing.T, fsys vfs.FS, path string) string {
	t.Helper()
	if _, err := fsys.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "-"
	}
	return read(t, fsys, path)
}
