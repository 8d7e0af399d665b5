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

// Within returns fsys with a private directory at dir, an absolute path. PrivateDir(dir) creates or finds the directory, checks that no
// other user can replace it, and keeps it open. From then on everything below dir is reached through that descriptor, even if the path
// changes, and new files have mode 0600. Before PrivateDir nothing below dir can be used. A file system without owners, such as one in
// memory, is returned unchanged.
func Within(fsys FS, dir string) FS {
	if w, ok := fsys.(interface{ Within(dir string) FS }); ok {
		return w.Within(dir)
	}
	return fsys
}

// Within holds a descriptor for as long as the file system that it returns is in use.
func (OS) Within(dir string) FS { return &heldFS{dir: filepath.Clean(dir)} }

// Held returns OS, except that everything below the open directory in is reached through it, even if its path changes. New files there have
// mode 0600.
func Held(in *os.Root) FS {
	w := &heldFS{dir: filepath.Clean(in.Name())}
	w.held.Store(in)
	return w
}

// heldFS is OS, except for what is below dir.
type heldFS struct {
	OS
	dir string
	// held is the open directory. If another process removes it, because it is empty, and it is created again, it is opened again; the old
	// one is closed when it is no longer used (os.Root has a finalizer).
	held atomic.Pointer[os.Root]
}

// below returns a name relative to the directory. ok is false if the name is elsewhere.
func (w *heldFS) below(name string) (rel string, ok bool) {
	name = filepath.Clean(name)
	if name == w.dir {
		return ".", true
	}
	return strings.CutPrefix(name, strings.TrimSuffix(w.dir, "/")+"/")
}

// do performs an operation: through the open directory, or as OS does for names elsewhere.
func (w *heldFS) do(op, name string, elsewhere func(name string) error, inside func(in *os.Root, rel string) error) error {
	_, err := get(w, op, name, func(name string) (struct{}, error) { return struct{}{}, elsewhere(name) },
		func(in *os.Root, rel string) (struct{}, error) { return struct{}{}, inside(in, rel) })
	return err
}

// get is do for an operation that returns a value.
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
		return none, pathError(op, name, fs.ErrPermission) // the directory has not been checked
	}
	value, err := inside(in, rel)
	return value, named(err, op, name)
}

// named returns an error of an os.Root with the whole path.
func named(err error, op, name string) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return pathError(op, name, p.Err)
	}
	return err
}

// PrivateDir of the directory itself keeps it open from then on.
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
	if err := checkPrivate(w.dir, info); err != nil { // of the open directory
		return errors.Join(err, in.Close())
	}
	w.held.Store(in)
	return nil
}

func (w *heldFS) Create(name string) (File, error) {
	return get(w, "create", name, w.OS.Create, func(in *os.Root, rel string) (File, error) {
		f, err := in.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err // a nil File, not a File with a nil value
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

// RemoveDir of the directory itself uses its path, and removes nothing else.
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

// Stat of the directory itself uses its path: it reports whether anything exists there, and returns ErrExposed if another user decides
// that.
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
