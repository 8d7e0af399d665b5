package vfstest_test

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// crashed returns m after a power cut that keeps nothing, or everything, that was not synced.
func crashed(m *vfstest.Mem, percent int) *vfstest.Mem {
	return m.CrashClone(percent, rand.New(rand.NewPCG(1, 2)))
}

func TestCrashKeepsOnlyWhatIsSynced(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(t *testing.T, m *vfstest.Mem)
		path string
		want string // "-": the file does not exist
		all  string // content after a crash that happens to keep everything
	}{
		{"file and folder synced", func(t *testing.T, m *vfstest.Mem) {
			write(t, m, "/d/a", "one")
			must(t, m.SyncDir("/d"))
		}, "/d/a", "one", "one"},
		{"folder not synced", func(t *testing.T, m *vfstest.Mem) { write(t, m, "/d/a", "one") }, "/d/a", "-", "one"},
		{"file not synced", func(t *testing.T, m *vfstest.Mem) {
			f, err := m.Create("/d/a")
			must(t, err)
			_, err = io.WriteString(f, "one")
			must(t, err)
			must(t, m.SyncDir("/d"))
		}, "/d/a", "", "one"},
		{"written again after the sync", func(t *testing.T, m *vfstest.Mem) {
			f, err := m.Create("/d/a")
			must(t, err)
			_, err = io.WriteString(f, "one")
			must(t, err)
			must(t, f.Sync())
			_, err = io.WriteString(f, "two")
			must(t, err)
			must(t, m.SyncDir("/d"))
		}, "/d/a", "one", "onetwo"},
		{"rename not synced", func(t *testing.T, m *vfstest.Mem) {
			write(t, m, "/d/a", "old")
			must(t, m.SyncDir("/d"))
			write(t, m, "/d/b", "new")
			must(t, m.Rename("/d/b", "/d/a"))
		}, "/d/a", "old", "new"},
		{"removal not synced", func(t *testing.T, m *vfstest.Mem) {
			write(t, m, "/d/a", "old")
			must(t, m.SyncDir("/d"))
			must(t, m.Remove("/d/a"))
		}, "/d/a", "old", "-"},
		{"removal synced", func(t *testing.T, m *vfstest.Mem) {
			write(t, m, "/d/a", "old")
			must(t, m.SyncDir("/d"))
			must(t, m.Remove("/d/a"))
			must(t, m.SyncDir("/d"))
		}, "/d/a", "-", "-"},
		{"folder itself not synced", func(t *testing.T, m *vfstest.Mem) {
			must(t, m.Mkdir("/d/e"))
			write(t, m, "/d/e/a", "one")
			must(t, m.SyncDir("/d/e"))
		}, "/d/e/a", "-", "one"},
		{"rename of a folder not synced", func(t *testing.T, m *vfstest.Mem) {
			must(t, m.Mkdir("/d/e"))
			write(t, m, "/d/e/a", "one")
			must(t, m.SyncDir("/d/e"))
			must(t, m.SyncDir("/d"))
			must(t, m.Rename("/d/e", "/d/f"))
		}, "/d/e/a", "one", "-"},
		{"rename of a folder synced, what is in it not", func(t *testing.T, m *vfstest.Mem) {
			must(t, m.Mkdir("/d/e"))
			must(t, m.SyncDir("/d"))
			write(t, m, "/d/e/a", "one")
			must(t, m.Rename("/d/e", "/d/f"))
			must(t, m.SyncDir("/d"))
		}, "/d/f/a", "-", "one"},
		{"folder removed, its name given to another", func(t *testing.T, m *vfstest.Mem) {
			must(t, m.Mkdir("/d/e"))
			must(t, m.SyncDir("/d"))
			must(t, m.RemoveDir("/d/e"))
			write(t, m, "/d/e", "file")
		}, "/d/e/none", "-", "-"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := vfstest.NewMem()
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

// TestCrashTearsFiles: part of a file may survive, in whole blocks, and the same seed gives the same result.
func TestCrashTearsFiles(t *testing.T) {
	t.Parallel()
	m := vfstest.NewMem()
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
	if _, err := fsys.Stat(path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return "-"
	}
	return read(t, fsys, path)
}

// TestCrashNeverLosesAFolder renames durable folders in every order among a few names of two parents. Afterwards each folder is in exactly
// one place, with its content.
func TestCrashNeverLosesAFolder(t *testing.T) {
	t.Parallel()
	moved := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 7))
		m := vfstest.NewMem()
		var names []string
		for _, parent := range []string{"/p", "/q"} {
			must(t, m.Mkdir(parent))
			for _, base := range []string{"a", "b", "c"} {
				names = append(names, parent+"/"+base)
			}
		}
		for i, name := range names[:4] {
			must(t, m.Mkdir(name))
			write(t, m, name+"/tag", string(rune('0'+i)))
			must(t, m.SyncDir(name))
		}
		for _, dir := range []string{"/p", "/q", "/"} {
			must(t, m.SyncDir(dir))
		}
		for range 8 {
			_ = m.Rename(names[rng.IntN(len(names))], names[rng.IntN(len(names))]) // a name that exists is refused
			if rng.IntN(4) == 0 {
				must(t, m.SyncDir([]string{"/p", "/q"}[rng.IntN(2)]))
			}
		}
		crashed := m.CrashClone(50, rng)
		found := ""
		for i, name := range names {
			tag := content(t, crashed, name+"/tag")
			if tag != "-" {
				found += tag
			}
			if i < 4 && tag != string(rune('0'+i)) {
				moved++
			}
		}
		for tag := range strings.SplitSeq("0123", "") {
			if strings.Count(found, tag) != 1 {
				t.Fatalf("seed %d: the folders found are %q, want each of 0 to 3 once", seed, found)
			}
		}
	}
	if moved < 100 {
		t.Errorf("only %d folders were elsewhere after 200 crashes: the test tests little", moved)
	}
}
