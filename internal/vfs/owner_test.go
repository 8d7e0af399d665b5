package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
)

func TestCheckOwnerRefusesWhatOthersCanChange(t *testing.T) {
	for _, test := range []struct {
		name string
		mode os.FileMode
		uid  int // -1: this user
		good bool
	}{
		{"private", 0o700, -1, true},
		{"others may read", 0o755, -1, true},
		{"the group may write", 0o770, -1, false},
		{"anybody may write, sticky", 0o777 | os.ModeSticky, -1, false},
		{"another user's", 0o700, 12345, false},
	} {
		dir := filepath.Join(t.TempDir(), "dir")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, test.mode)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, test.uid, -1); err != nil {
			t.Logf("%s: not tried: %v", test.name, err)
			continue
		}
		info, err := os.Lstat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckOwner(dir, info); (err == nil) != test.good || err != nil && !errors.Is(err, ErrExposed) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// TestPrivateDirRefusesWhatOthersMayEnter: PrivateDir makes a folder with mode 0700, and accepts it again. It refuses a link, a file, a
// folder that others may enter, and a folder of another user.
func TestPrivateDirRefusesWhatOthersMayEnter(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "own")
	for range 2 {
		if err := PrivateDir(OS{}, own); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(own)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("%v, %v", info, err)
	}
	open, link, file, foreign := filepath.Join(dir, "open"), filepath.Join(dir, "link"), filepath.Join(dir, "file"),
		filepath.Join(dir, "foreign")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o750), os.Symlink(own, link), os.WriteFile(file, nil, 0o600),
		os.Mkdir(foreign, 0o700)); err != nil {
		t.Fatal(err)
	}
	refused := []string{open, link, file}
	if err := os.Chown(foreign, 12345, -1); err != nil {
		t.Logf("without the folder of another user: %v", err)
	} else {
		refused = append(refused, foreign)
	}
	for _, name := range refused {
		if err := PrivateDir(OS{}, name); !errors.Is(err, ErrExposed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// stranger is the id of a user without an account.
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

// publicDir returns a folder that others can enter, and that only this user can write to. The folder above it is the same.
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

// TestWayFollowsLinksAsTheKernel: links are followed as the kernel follows them, and each counts as one step.
func TestWayFollowsLinksAsTheKernel(t *testing.T) {
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
		steps, err := walkPath(filepath.Join(dir, path))
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

// TestExposedAboveNamesTheNearestFolder: the nearest folder or link that another user can change is named, even if other users cannot enter
// a folder above it.
func TestExposedAboveNamesTheNearestFolder(t *testing.T) {
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

// askVariable holds the folders about which TestFoldersOfTwoUsersAreKeptApart asks a process of another user, one on each line.
const askVariable = "DDPBATCH_VFS_TEST_FOLDERS"

// victim is the id of the user of the folders, and stranger that of the attacker. Neither has an account.
const victim = 4241

// TestFoldersOfTwoUsersAreKeptApart: a user who is not root opens and holds only their own folders, below folders that are their own or
// root's.
func TestFoldersOfTwoUsersAreKeptApart(t *testing.T) {
	if folders := os.Getenv(askVariable); folders != "" {
		for path := range strings.SplitSeq(folders, "\n") {
			in, err := OpenFolder(path)
			if err == nil {
				err = in.Close()
			}
			held := PrivateDir(Within(OS{}, path+"/run"), path+"/run")
			fmt.Printf("asked: %t %t\n", errors.Is(err, ErrExposed), errors.Is(held, ErrExposed))
			if err != nil && !errors.Is(err, ErrExposed) {
				t.Error(err)
			}
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can act as two users")
	}
	dir := publicDir(t)
	var folders, want []string
	for _, row := range []struct {
		above        int // the owner of the folder above
		mode         fs.FileMode
		owner        int
		own          fs.FileMode
		open, within bool // whether it may be opened, as a cache is, and whether it may hold a private folder
	}{
		{0, 0o755, victim, 0o700, true, true},
		{0, 0o777 | fs.ModeSticky, victim, 0o755, true, true},
		{0, 0o777, victim, 0o700, true, false},
		{victim, 0o755, victim, 0o755, true, true},
		{victim, 0o775, victim, 0o755, true, false}, // a project's folder
		{victim, 0o700, victim, 0o775, true, true},
		{stranger, 0o755, victim, 0o700, true, false},
		{stranger, 0o777 | fs.ModeSticky, victim, 0o700, true, false},
		{0, 0o755, stranger, 0o777, false, false},
		{0, 0o755, stranger, 0o777 | fs.ModeSticky, false, false},
		{0, 0o755, 0, 0o777 | fs.ModeSticky, false, true}, // like /tmp
		{0, 0o755, 0, 0o777, false, false},
		{0, 0o755, victim, 0o770, false, false},
	} {
		above := filepath.Join(dir, fmt.Sprint(len(folders)))
		path := filepath.Join(above, "folder")
		mustMkdir(t, above, row.mode)
		mustMkdir(t, path, row.own)
		if err := errors.Join(os.Chown(above, row.above, row.above), os.Chown(path, row.owner, row.owner)); err != nil {
			t.Fatal(err)
		}
		folders = append(folders, path)
		want = append(want, fmt.Sprintf("asked: %t %t", !row.open, !row.within))
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestFoldersOfTwoUsersAreKeptApart$", "-test.v")
	cmd.Env = append(os.Environ(), askVariable+"="+strings.Join(folders, "\n"))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: victim, Gid: victim}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "asked: ") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d answers, want %d: %s", len(got), len(want), out)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("row %d: %s, want %s (open and within refused)", i, got[i], want[i])
		}
	}
}
