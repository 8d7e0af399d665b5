package distributed

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// On a real disk, only this user can access the files of the tier, and a clean end leaves nothing behind.
func TestLocalIsPrivate(t *testing.T) {
	t.Parallel()
	scratch := t.TempDir()
	r := realTier(t, t.TempDir(), scratch, 1, Options{})
	must(t, r.save(t.Context(), 5))
	info, err := os.Lstat(r.tier.path)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v: %v", info, err)
	}
	must(t, r.Close())
	if left, err := os.ReadDir(scratch); len(left) > 0 || err != nil {
		t.Errorf("after a clean end there are %v, %v", left, err)
	}
}

// stranger is the ID of a user without an account.
const stranger = 4242

// give gives a file, a link or a folder to another user. Only root may do that.
func give(t testing.TB, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files to another user")
	}
	must(t, os.Lchown(path, stranger, stranger))
}

// sharedArea returns a folder on a real disk that everyone may write to, and in which users may remove and rename only their own files.
func sharedArea(t testing.TB) string {
	t.Helper()
	testkit.EnterTemp(t)
	dir := t.TempDir()
	must(t, errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777|fs.ModeSticky)))
	return dir
}

// realTier returns one rank that saves to a real shared folder through a node's own disk at local.
func realTier(t testing.TB, shared, local string, attempt int, o Options) *one {
	t.Helper()
	dir, err := checkpoint.Open(shared, checkpoint.Options{Codec: "none", Workers: 1, Run: "trial", Attempt: attempt})
	must(t, err)
	r := &one{arrays: arraysOf(0)}
	o.Local, o.Async = local, true
	r.Saver, err = New(t.Context(), newGoroutineGroup(1).member(0), dir, r.arrays, o)
	must(t, err)
	return r
}

// If other users have taken the name of the run's folder, or can replace the folder, the run does not read or write it. The run logs that
// and continues with its shared folder.
func TestTierOfAnotherUserIsNotUsed(t *testing.T) {
	t.Parallel()
	mkdir := func(t *testing.T, path string, mode fs.FileMode) {
		must(t, errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode)))
	}
	for name, plant := range map[string]func(t *testing.T, area, folder string){
		"open folder": func(t *testing.T, _, folder string) { mkdir(t, folder, 0o755) },
		"folder of another user": func(t *testing.T, _, folder string) {
			mkdir(t, folder, 0o700)
			give(t, folder)
		},
		"file": func(t *testing.T, _, folder string) {
			mkdir(t, filepath.Dir(folder), 0o755)
			must(t, os.WriteFile(folder, nil, 0o600))
		},
		"pipe": func(t *testing.T, _, folder string) {
			mkdir(t, filepath.Dir(folder), 0o755)
			must(t, syscall.Mkfifo(folder, 0o600))
		},
		"link": func(t *testing.T, area, folder string) {
			mkdir(t, filepath.Dir(folder), 0o755)
			mkdir(t, filepath.Join(area, "elsewhere"), 0o700)
			must(t, os.Symlink(filepath.Join(area, "elsewhere"), folder))
		},
		"others write above": func(t *testing.T, area, _ string) { mkdir(t, filepath.Join(area, "a"), 0o777) },
		"another user's folder above": func(t *testing.T, area, _ string) {
			mkdir(t, filepath.Join(area, "a"), 0o755)
			give(t, filepath.Join(area, "a"))
		},
		"another user's file above": func(t *testing.T, area, _ string) {
			must(t, os.WriteFile(filepath.Join(area, "a"), nil, 0o600))
			give(t, filepath.Join(area, "a"))
		},
		"another user's link above, to itself": func(t *testing.T, area, _ string) {
			must(t, os.Symlink("a", filepath.Join(area, "a")))
			give(t, filepath.Join(area, "a"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			area, shared := sharedArea(t), t.TempDir()
			local := filepath.Join(area, "a", "b")
			home, err := filepath.Abs(shared)
			must(t, err)
			plant(t, area, filepath.Join(local, tierFolder(checkpoint.Location{Run: "trial", Path: home})))
			before := realTree(t, area)
			var journal testkit.Journal
			r := realTier(t, shared, local, 1, Options{Log: journal.Logger()})
			step, err := r.resume(t.Context())
			if step != -1 || err != nil {
				t.Errorf("resumed from %d: %v", step, err)
			}
			must(t, r.save(t.Context(), 5))
			must(t, r.Close())
			if after := realTree(t, area); !slices.Equal(after, before) {
				t.Errorf("there is %q now, and was %q", after, before)
			}
			if log := journal.String(); strings.Count(log, "node-local disk cannot be used") != 1 ||
				!strings.Contains(log, vfs.ErrExposed.Error()) {
				t.Errorf("log: %s", log)
			}
			again := realTier(t, shared, "", 2, Options{})
			if step, err := again.resume(t.Context()); step != 5 || err != nil {
				t.Errorf("then resumed from %d: %v", step, err)
			}
			must(t, again.Close())
		})
	}
}

// realTree lists the files and folders below a folder of the real file system, with their modes.
func realTree(t testing.TB, dir string) (list []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && path != dir {
			list = append(list, strings.TrimPrefix(path, dir+"/")+" "+info.Mode().String())
		}
		return err
	}))
	return list
}

// Another user has moved the run's folder away, as others may be able to by then, and has put a folder in its place that all users can
// read. Later shards still go to the run's own folder, and other users cannot read them.
func TestTierIsHeldThoughItIsMoved(t *testing.T) {
	t.Parallel()
	area := sharedArea(t)
	var looked int
	var folder, moved string
	plan := func(_ int, op vfstest.Op) vfstest.Fault { // each shard is opened to be copied to the shared folder
		if op.Kind != "open" || !strings.HasPrefix(op.Path, area) || filepath.Ext(op.Path) != ".ddpt" {
			return vfstest.Fault{}
		}
		looked++
		shards := 0
		for _, line := range realTree(t, moved) {
			if strings.HasSuffix(line, ".ddpt -rw-------") {
				shards++
			} else if !strings.HasSuffix(line, " drwx------") && !strings.HasSuffix(line, ".json -rw-------") {
				t.Errorf("others can get at %s", line)
			}
		}
		if planted := realTree(t, folder); shards != 1 || len(planted) > 0 {
			t.Errorf("%d shards are in the run's folder, want 1; in the other is %q", shards, planted)
		}
		return vfstest.Fault{}
	}
	r := realTier(t, t.TempDir(), area, 1, Options{FS: vfstest.NewInjector(vfs.OS{}, plan)})
	must(t, r.Begin(t.Context()))
	folder, moved = r.tier.path, r.tier.path+".moved"
	must(t, errors.Join(os.Rename(folder, moved), os.Mkdir(folder, 0o700), os.Chmod(folder, 0o777)))
	if os.Geteuid() == 0 {
		give(t, folder)
	}
	must(t, r.save(t.Context(), 5))
	if info, err := r.Wait(t.Context()); err != nil || info.Step != 5 {
		t.Errorf("saved step %d: %v", info.Step, err)
	}
	must(t, r.Close())
	if looked != 1 {
		t.Errorf("%d shards were brought to the shared folder, want 1", looked)
	}
	if _, err := os.Lstat(folder); err != nil {
		t.Errorf("the other user's folder: %v", err)
	}
}
