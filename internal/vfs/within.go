package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
)

// Within returns fsys with a private folder at dir, an absolute path. PrivateDir(dir) makes or finds the folder, checks that no other
// user can replace it, and holds it open. From then on everything below dir is reached through that descriptor, whatever becomes of the
// path, and new files have mode 0600. Nothing below dir can be used before. A file system without owners, such as one in memory, is returned as it
// is.
func Within(fsys FS, dir string) FS {
	if w, ok := fsys.(interface{ Within(dir string) FS }); ok {
		return w.Within(dir)
	}
	return fsys
}

// Within holds a descriptor for as long as the file system that it returns is in use.
func (OS) Within(dir string) FS { return &heldFS{dir: filepath.Clean(dir)} }

// Held returns OS in which everything below a folder that is held open is reached through that, whatever becomes of its path. New files
// there have mode 0600.
func Held(in *os.Root) FS {
	w := &heldFS{dir: filepath.Clean(in.Name())}
	w.held.Store(in)
	return w
}

// heldFS is OS but for what is below dir.
type heldFS struct {
	OS
	dir string
	// held is the folder. One that another process removes, as it is empty, and that is made again is held anew; the one before is closed
	// when nobody uses it any more (os.Root has a finalizer).
	held atomic.Pointer[os.Root]
}

// below is the name of what is in the folder, relative to it; false: it is elsewhere.
func (w *heldFS) below(name string) (rel string, ok bool) {
	name = filepath.Clean(name)
	if name == w.dir {
		return ".", true
	}
	return strings.CutPrefix(name, strings.TrimSuffix(w.dir, "/")+"/")
}

// do carries out an operation on what is in the folder.
func (w *heldFS) do(op, name string, run func(in *os.Root) error) error {
	in := w.held.Load()
	if in == nil {
		return pathError(op, name, fs.ErrPermission) // of a folder that nobody has looked at
	}
	return named(run(in), op, name)
}

// named is an error of an os.Root with the whole path in it.
func named(err error, op, name string) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return pathError(op, name, p.Err)
	}
	return err
}

// PrivateDir of the folder itself holds it from then on.
func (w *heldFS) PrivateDir(name string) error {
	rel, ok := w.below(name)
	switch {
	case !ok:
		return w.OS.PrivateDir(name)
	case rel == ".":
		return w.hold()
	}
	return w.do("mkdir", name, func(in *os.Root) error {
		if err := in.Mkdir(rel, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		info, err := in.Lstat(rel)
		if err != nil {
			return err
		}
		return checkPrivate(name, info)
	})
}

func (w *heldFS) hold() error {
	if err := checkFolders(filepath.Dir(w.dir)); err != nil {
		return err
	}
	if err := w.OS.PrivateDir(w.dir); err != nil {
		return err
	}
	in, info, err := openFolder(w.dir)
	if err != nil {
		return err
	}
	if err := checkPrivate(w.dir, info); err != nil { // of what was opened
		return errors.Join(err, in.Close())
	}
	w.held.Store(in)
	return nil
}

func (w *heldFS) Create(name string) (File, error) {
	rel, ok := w.below(name)
	if !ok {
		return w.OS.Create(name)
	}
	var f *os.File
	err := w.do("create", name, func(in *os.Root) (err error) {
		f, err = in.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return nil, err // and no File that is not nil
	}
	return osFile{f}, nil
}

func (w *heldFS) Open(name string) (File, error) {
	rel, ok := w.below(name)
	if !ok {
		return w.OS.Open(name)
	}
	var f *os.File
	err := w.do("open", name, func(in *os.Root) (err error) {
		f, _, err = OpenRegularIn(in, rel)
		return err
	})
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (w *heldFS) Rename(oldName, newName string) error {
	oldRel, oldOK := w.below(oldName)
	newRel, newOK := w.below(newName)
	switch {
	case !oldOK && !newOK:
		return w.OS.Rename(oldName, newName)
	case !oldOK || !newOK:
		return linkError(oldName, newName, syscall.EXDEV)
	}
	err := w.do("rename", newName, func(in *os.Root) error { return in.Rename(oldRel, newRel) })
	var l *os.LinkError
	if errors.As(err, &l) {
		return linkError(oldName, newName, l.Err)
	}
	return err
}

func (w *heldFS) Remove(name string) error {
	rel, ok := w.below(name)
	if !ok {
		return w.OS.Remove(name)
	}
	return w.do("remove", name, func(in *os.Root) error {
		info, err := in.Lstat(rel)
		if err == nil && info.IsDir() {
			err = syscall.EISDIR
		}
		if err != nil {
			return pathError("remove", name, err)
		}
		return in.Remove(rel)
	})
}

// RemoveDir of the folder itself goes by its path, and removes nothing that is not the folder.
func (w *heldFS) RemoveDir(name string) error {
	rel, ok := w.below(name)
	if !ok {
		return w.OS.RemoveDir(name)
	}
	return w.do("rmdir", name, func(in *os.Root) error {
		info, err := in.Lstat(rel)
		if err == nil && rel == "." {
			if now, lerr := os.Lstat(w.dir); lerr != nil || !os.SameFile(now, info) {
				err = fs.ErrNotExist
			}
		} else if err == nil && !info.IsDir() {
			err = syscall.ENOTDIR
		}
		switch {
		case err != nil:
			return pathError("rmdir", name, err)
		case rel == ".":
			return w.OS.RemoveDir(w.dir)
		}
		return in.Remove(rel)
	})
}

func (w *heldFS) Mkdir(name string) error {
	rel, ok := w.below(name)
	if !ok {
		return w.OS.Mkdir(name)
	}
	return w.do("mkdir", name, func(in *os.Root) error { return in.Mkdir(rel, 0o700) })
}

func (w *heldFS) ReadDir(name string) (list []fs.DirEntry, err error) {
	rel, ok := w.below(name)
	if !ok {
		return w.OS.ReadDir(name)
	}
	err = w.do("open", name, func(in *os.Root) error {
		dir, err := in.Open(rel)
		if err != nil {
			return err
		}
		list, err = dir.ReadDir(-1)
		slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		return errors.Join(err, dir.Close())
	})
	return list, err
}

// Stat of the folder itself goes by its path: it tells whether anything is there, and is ErrExposed where another user decides that.
func (w *heldFS) Stat(name string) (info fs.FileInfo, err error) {
	rel, ok := w.below(name)
	if !ok {
		return w.OS.Stat(name)
	}
	if rel == "." {
		if err := checkFolders(filepath.Dir(w.dir)); errors.Is(err, ErrExposed) {
			return nil, err
		}
		return w.OS.Stat(name)
	}
	err = w.do("stat", name, func(in *os.Root) error {
		info, err = in.Stat(rel)
		return err
	})
	return info, err
}

func (w *heldFS) SyncDir(name string) error {
	rel, ok := w.below(name)
	if !ok {
		return w.OS.SyncDir(name)
	}
	return w.do("open", name, func(in *os.Root) error {
		dir, err := in.Open(rel)
		if err != nil {
			return err
		}
		return syncDir(dir)
	})
}
