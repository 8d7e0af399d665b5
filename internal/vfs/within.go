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
// path, and new files have mode 0600. Nothing below dir can be used before. A file system without owners, such as one in memory, is
// returned as it is.
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

// do carries out an operation: on what is in the folder through that, on what is elsewhere as OS does.
func (w *heldFS) do(op, name string, elsewhere func(name string) error, inside func(in *os.Root, rel string) error) error {
	_, err := get(w, op, name, func(name string) (struct{}, error) { return struct{}{}, elsewhere(name) },
		func(in *os.Root, rel string) (struct{}, error) { return struct{}{}, inside(in, rel) })
	return err
}

// get is do for an operation that returns something.
func get[T any](
	w *heldFS, op, name string, elsewhere func(name string) (T, error), inside func(in *os.Root, rel string) (T, error),
) (T, error) {
	rel, ok := w.below(name)
	if !ok {
		return elsewhere(name)
	}
	in := w.held.Load()
	if in == nil {
		var none T
		return none, pathError(op, name, fs.ErrPermission) // of a folder that nobody has looked at
	}
	value, err := inside(in, rel)
	return value, named(err, op, name)
}

// named is an error of an os.Root with the whole path in it.
func named(err error, op, name string) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return pathError(op, name, p.Err)
	}
	return err
}

// PrivateDir of the folder itself holds it from then on.
func (w *heldFS) PrivateDir(name string) error {
	if rel, ok := w.below(name); ok && rel == "." {
		return w.hold()
	}
	return w.do("mkdir", name, w.OS.PrivateDir, func(in *os.Root, rel string) error {
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
	return get(w, "create", name, w.OS.Create, func(in *os.Root, rel string) (File, error) {
		f, err := in.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err // and no File that is not nil
		}
		return osFile{f}, nil
	})
}

func (w *heldFS) Open(name string) (File, error) {
	return get(w, "open", name, w.OS.Open, func(in *os.Root, rel string) (File, error) {
		f, _, err := OpenRegularIn(in, rel)
		if err != nil {
			return nil, err
		}
		return osFile{f}, nil
	})
}

func (w *heldFS) Rename(oldName, newName string) error {
	oldRel, oldOK := w.below(oldName)
	_, newOK := w.below(newName)
	if oldOK != newOK {
		return linkError(oldName, newName, syscall.EXDEV)
	}
	elsewhere := func(string) error { return w.OS.Rename(oldName, newName) }
	err := w.do("rename", newName, elsewhere, func(in *os.Root, newRel string) error { return in.Rename(oldRel, newRel) })
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		return linkError(oldName, newName, l.Err)
	}
	return err
}

func (w *heldFS) Remove(name string) error {
	return w.do("remove", name, w.OS.Remove, func(in *os.Root, rel string) error {
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
	return w.do("rmdir", name, w.OS.RemoveDir, func(in *os.Root, rel string) error {
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
	return w.do("mkdir", name, w.OS.Mkdir, func(in *os.Root, rel string) error { return in.Mkdir(rel, 0o700) })
}

func (w *heldFS) ReadDir(name string) ([]fs.DirEntry, error) {
	return get(w, "open", name, w.OS.ReadDir, func(in *os.Root, rel string) ([]fs.DirEntry, error) {
		dir, err := in.Open(rel)
		if err != nil {
			return nil, err
		}
		list, err := dir.ReadDir(-1)
		slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		return list, errors.Join(err, dir.Close())
	})
}

// Stat of the folder itself goes by its path: it tells whether anything is there, and is ErrExposed where another user decides that.
func (w *heldFS) Stat(name string) (info fs.FileInfo, err error) {
	if rel, ok := w.below(name); ok && rel == "." {
		if err := checkFolders(filepath.Dir(w.dir)); errors.Is(err, ErrExposed) {
			return nil, err
		}
		return w.OS.Stat(name)
	}
	return get(w, "stat", name, w.OS.Stat, func(in *os.Root, rel string) (fs.FileInfo, error) { return in.Stat(rel) })
}

func (w *heldFS) SyncDir(name string) error {
	return w.do("open", name, w.OS.SyncDir, func(in *os.Root, rel string) error {
		dir, err := in.Open(rel)
		if err != nil {
			return err
		}
		return syncDir(dir)
	})
}
