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
)

// askVariable holds the folders that TestFoldersOfTwoUsers asks another user's process about, one a line.
const askVariable = "DDPBATCH_VFS_TEST_FOLDERS"

// victim is the user id of who uses the folders, and stranger that of who is after them. Neither has an account.
const victim = 4241

// TestFoldersOfTwoUsers: a user who is not root opens and holds only what is theirs, below what is theirs or root's.
func TestFoldersOfTwoUsers(t *testing.T) {
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
		above        int // whose folder it is in
		mode         fs.FileMode
		owner        int
		own          fs.FileMode
		open, within bool // whether it may be opened as a cache is, and a private folder be kept in it
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
		{0, 0o755, 0, 0o777 | fs.ModeSticky, false, true}, // as /tmp
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
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestFoldersOfTwoUsers$", "-test.v")
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
