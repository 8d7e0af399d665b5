package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
)

// stranger is the user id of somebody who has no account.
const stranger = 4242

// give gives a file, or a link, to another user.
func give(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files to another user")
	}
	if err := os.Lchown(path, stranger, stranger); err != nil {
		t.Fatal(err)
	}
}

// publicDir is a folder that others can enter, and only this user can write to, below one that is so, too.
func publicDir(t *testing.T) string {
	t.Helper()
	testkit.EnterTemp(t)
	above := t.TempDir()
	dir := filepath.Join(above, "public")
	if err := errors.Join(os.Chmod(filepath.Dir(above), 0o755), os.Chmod(above, 0o755), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustMkdir(t *testing.T, path string, mode fs.FileMode) string {
	t.Helper()
	if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWay: links are followed as the kernel follows them, and each counts as a step of its own.
func TestWay(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mustMkdir(t, filepath.Join(dir, "a"), 0o755)
	mustMkdir(t, filepath.Join(dir, "a", "b"), 0o755)
	mustMkdir(t, filepath.Join(dir, "c"), 0o755)
	for link, target := range map[string]string{
		"c/up": "../a/./b", "abs": filepath.Join(dir, "c"), "loop": "loop", "nowhere": "x",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]struct {
		steps string // below dir
		err   error
	}{
		"a/b":     {"a a/b", nil},
		"c/up":    {"c c/up a a/b", nil},
		"abs/up":  {"abs c c/up a a/b", nil},
		"loop":    {"", syscall.ELOOP},
		"nowhere": {"nowhere", fs.ErrNotExist},
		"a/x":     {"a", fs.ErrNotExist},
	} {
		steps, err := way(filepath.Join(dir, path))
		var below []string
		for _, s := range steps {
			if rest, ok := strings.CutPrefix(s.path, dir+"/"); ok {
				below = append(below, rest)
			}
		}
		if got := strings.Join(below, " "); got != want.steps && want.steps != "" || !errors.Is(err, want.err) {
			t.Errorf("%s: %q, error %v; want %q, %v", path, got, err, want.steps, want.err)
		}
	}
}

// TestExposedAbove: the nearest folder or link is named that another user can change, also where a folder above it lets nobody in.
func TestExposedAbove(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(publicDir(t))
	if err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]fs.FileMode{"open": 0o775, "sticky": 0o777 | fs.ModeSticky, "real": 0o777, "shut": 0o700} {
		mustMkdir(t, filepath.Join(dir, path), mode)
		mustMkdir(t, filepath.Join(dir, path, "project"), 0o755)
		mustMkdir(t, filepath.Join(dir, path, "project", "runs"), 0o777)
	}
	if err := os.Symlink(filepath.Join("real", "project"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"open/project/runs": "open", "sticky/project/runs": "", "link/runs": "real", "shut/project/runs": "",
		"shut/project/runs/x": "shut/project/runs",
	} {
		if want != "" {
			want = filepath.Join(dir, want)
		}
		if got := ExposedAbove(filepath.Join(dir, path)); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	foreign := filepath.Join(dir, "sticky", "foreign")
	if err := os.Symlink(filepath.Join(dir, "shut", "project"), foreign); err != nil {
		t.Fatal(err)
	}
	give(t, foreign)
	if got := ExposedAbove(filepath.Join(foreign, "runs")); got != foreign {
		t.Errorf("below a link of another user: %q, want %q", got, foreign)
	}
}
