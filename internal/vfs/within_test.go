package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestCheckFoldersRefusesWhatOthersCanChange(t *testing.T) {
	t.Parallel()
	dir := publicDir(t)
	mustMkdir(t, filepath.Join(dir, "open"), 0o777)
	mustMkdir(t, filepath.Join(dir, "open", "own"), 0o700)
	mustMkdir(t, filepath.Join(dir, "sticky"), 0o777|fs.ModeSticky)
	mustMkdir(t, filepath.Join(dir, "sticky", "own"), 0o755)
	mustMkdir(t, filepath.Join(dir, "shut"), 0o700)
	mustMkdir(t, filepath.Join(dir, "shut", "open"), 0o777)
	mustMkdir(t, filepath.Join(dir, "group"), 0o710)
	mustMkdir(t, filepath.Join(dir, "group", "open"), 0o770)
	for path, good := range map[string]bool{
		"": true, "open": false, "open/own": false, "open/own/x": false, "sticky": true, "sticky/own": true,
		"shut": true, "shut/open": true, "group": true, "group/open": false,
	} {
		err := checkFolders(filepath.Join(dir, path))
		if (err == nil) != good && path != "open/own/x" || !good && !errors.Is(err, ErrExposed) {
			t.Errorf("%q: %v", path, err)
		}
	}
	foreign := mustMkdir(t, filepath.Join(dir, "sticky", "foreign"), 0o755)
	give(t, foreign)
	if err := checkFolders(foreign); !errors.Is(err, ErrExposed) {
		t.Errorf("another user's folder: %v", err)
	}
}

func TestOpenFolderRefusesWhatOthersCanChange(t *testing.T) {
	t.Parallel()
	dir := publicDir(t)
	open := mustMkdir(t, filepath.Join(dir, "open"), 0o777)
	sticky := mustMkdir(t, filepath.Join(dir, "sticky"), 0o777|fs.ModeSticky)
	own := mustMkdir(t, filepath.Join(sticky, "own"), 0o755)
	link := filepath.Join(sticky, "link")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	mustMkdir(t, filepath.Join(dir, "shut"), 0o700)
	for path, good := range map[string]bool{
		own: true, link: true, sticky: false, open: false, mustMkdir(t, filepath.Join(open, "own"), 0o700): true,
		mustMkdir(t, filepath.Join(dir, "shut", "open"), 0o775): true,
	} {
		in, err := OpenFolder(path)
		if (err == nil) != good || !good && !errors.Is(err, ErrExposed) {
			t.Errorf("%s: %v", path, err)
		}
		if err == nil {
			if err := in.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := OpenFolder(filepath.Join(dir, "nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing: %v", err)
	}
	give(t, link)
	if _, err := OpenFolder(link); !errors.Is(err, ErrExposed) {
		t.Errorf("by a link of another user: %v", err)
	}
}

// TestWithinReachesTheFolderItFound: paths below the folder lead into the folder that was found, whatever has its name by then. Other paths
// are used as they are.
func TestWithinReachesTheFolderItFound(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, moved := filepath.Join(root, "dir"), filepath.Join(root, "moved")
	fsys := Within(OS{}, dir)
	if _, err := fsys.Create(dir + "/early"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("before the folder is there: %v", err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(path string) {
		t.Helper()
		f, err := fsys.Create(path)
		check(err)
		_, err = f.Write([]byte("x"))
		check(errors.Join(err, f.Close()))
	}
	check(PrivateDir(fsys, dir))
	check(os.Rename(dir, moved))
	check(os.Mkdir(dir, 0o700))
	check(fsys.Mkdir(dir + "/sub"))
	check(PrivateDir(fsys, dir+"/private"))
	write(dir + "/sub/file")
	check(fsys.Rename(dir+"/sub/file", dir+"/sub/renamed"))
	check(errors.Join(fsys.SyncDir(dir), fsys.SyncDir(dir+"/sub")))
	if list, err := os.ReadDir(dir); len(list) > 0 || err != nil {
		t.Errorf("in the new folder: %v, %v", list, err)
	}
	info, err := os.Stat(moved + "/sub/renamed")
	if err != nil || info.Mode() != 0o600 || info.Size() != 1 {
		t.Errorf("the file: %v, %v", info, err)
	}
	f, err := fsys.Open(dir + "/sub/renamed")
	check(err)
	check(f.Close())
	list, err := fsys.ReadDir(dir)
	if err != nil || len(list) != 2 || list[0].Name() != "private" || list[1].Name() != "sub" {
		t.Errorf("listed: %v, %v", list, err)
	}
	for what, row := range map[string]struct{ got, want error }{
		"a name that is taken":    {PrivateDir(fsys, dir+"/sub/renamed"), ErrExposed},
		"a full folder":           {fsys.RemoveDir(dir + "/sub"), fs.ErrExist},
		"rename onto a folder":    {fsys.Rename(dir+"/sub/renamed", dir+"/private"), fs.ErrExist},
		"out of the folder":       {fsys.Rename(dir+"/sub/renamed", root+"/out"), nil},
		"another folder's name":   {fsys.RemoveDir(dir), fs.ErrNotExist},
		"what is not there":       {fsys.Remove(dir + "/no"), fs.ErrNotExist},
		"a folder is not a file":  {fsys.Remove(dir + "/sub"), nil},
		"a file is not a folder":  {fsys.RemoveDir(dir + "/sub/renamed"), nil},
		"a folder that is a file": {fsys.Mkdir(dir + "/sub/renamed"), fs.ErrExist},
	} {
		if row.got == nil || row.want != nil && !errors.Is(row.got, row.want) {
			t.Errorf("%s: %v, want %v", what, row.got, row.want)
		}
	}
	_, err = fsys.Open(dir + "/no")
	var p *fs.PathError
	if !errors.As(err, &p) || p.Path != dir+"/no" {
		t.Errorf("an error that has not the whole path: %v", err)
	}
	check(fsys.Remove(dir + "/sub/renamed"))
	check(errors.Join(fsys.RemoveDir(dir+"/sub"), fsys.RemoveDir(dir+"/private")))

	// If the folder is gone, which happens if it is empty when another process ends, it is made and held again.
	check(os.Remove(moved))
	if err := fsys.Mkdir(dir + "/sub"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a folder that is gone: %v", err)
	}
	check(PrivateDir(fsys, dir))
	write(dir + "/again")
	if _, err := os.Stat(dir + "/again"); err != nil {
		t.Error(err)
	}
	check(fsys.Remove(dir + "/again"))
	check(fsys.RemoveDir(dir))
	if _, err := fsys.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	write(root + "/elsewhere")
}
