package vfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Mem is a file system in memory. Relative and absolute names mean the same: both start at its
// root, which always exists. It keeps, beside what a reader sees, what a sync has made durable.
type Mem struct {
	mu    sync.Mutex
	root  *node
	limit int64 // bytes of room; 0: no limit
}

var _ FS = (*Mem)(nil)

// node is a file or a folder. A file's synced and a folder's durable are what a power cut
// surely leaves.
type node struct {
	dir          bool
	data, synced []byte
	reserved     int64 // bytes preallocated
	gone         bool  // a file or folder that has no name any more
	settled      bool  // a folder whose name has been durable
	entries      map[string]*node
	durable      map[string]*node
}

// NewMem makes an empty file system.
func NewMem() *Mem { return &Mem{root: newDir()} }

func newDir() *node {
	return &node{dir: true, entries: map[string]*node{}, durable: map[string]*node{}}
}

func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent, base, err := m.parent("open", name)
	if err != nil {
		return nil, err
	}
	if parent.entries[base] != nil {
		return nil, pathError("open", name, syscall.EEXIST)
	}
	n := &node{}
	parent.entries[base] = n
	return &memFile{fs: m, node: n, name: name, writable: true}, nil
}

func (m *Mem) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("open", name)
	if err != nil {
		return nil, err
	}
	if n.dir {
		return nil, notRegular(name, fs.ModeDir)
	}
	return &memFile{fs: m, node: n, name: name}, nil
}

func (m *Mem) Remove(name string) error {
	return m.unlink("remove", name, func(n *node) error {
		if n.dir {
			return syscall.EISDIR
		}
		return nil
	})
}

func (m *Mem) RemoveDir(name string) error {
	return m.unlink("rmdir", name, func(n *node) error {
		switch {
		case !n.dir:
			return syscall.ENOTDIR
		case len(n.entries) > 0:
			return syscall.ENOTEMPTY
		}
		return nil
	})
}

// unlink takes a name out of its folder, unless refuse says why not.
func (m *Mem) unlink(op, name string, refuse func(*node) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent, base, err := m.parent(op, name)
	if err != nil {
		return err
	}
	n := parent.entries[base]
	if n == nil {
		return pathError(op, name, syscall.ENOENT)
	}
	if err := refuse(n); err != nil {
		return pathError(op, name, err)
	}
	delete(parent.entries, base)
	n.gone = true
	return nil
}

func (m *Mem) Mkdir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent, base, err := m.parent("mkdir", name)
	if err != nil {
		return err
	}
	if parent.entries[base] != nil {
		return pathError("mkdir", name, syscall.EEXIST)
	}
	parent.entries[base] = newDir()
	return nil
}

func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("readdir", name)
	if err != nil {
		return nil, err
	}
	if !n.dir {
		return nil, pathError("readdir", name, syscall.ENOTDIR)
	}
	var list []fs.DirEntry
	for base, child := range n.entries {
		list = append(list, fs.FileInfoToDirEntry(child.info(base)))
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("stat", name)
	if err != nil {
		return nil, err
	}
	return n.info(filepath.Base(name)), nil
}

func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("sync", name)
	if err != nil {
		return err
	}
	n.durable = make(map[string]*node, len(n.entries))
	for base, child := range n.entries {
		n.durable[base] = child
		child.settled = true
	}
	return nil
}

// find walks to a name.
func (m *Mem) find(op, name string) (*node, error) {
	n := m.root
	for part := range strings.SplitSeq(filepath.Clean("/" + name)[1:], "/") {
		if part == "" {
			continue // the root itself
		}
		if !n.dir {
			return nil, pathError(op, name, syscall.ENOTDIR)
		}
		if n = n.entries[part]; n == nil {
			return nil, pathError(op, name, syscall.ENOENT)
		}
	}
	return n, nil
}

// parent walks to the folder of a name.
func (m *Mem) parent(op, name string) (dir *node, base string, err error) {
	dir, err = m.find(op, filepath.Dir(filepath.Clean("/"+name)))
	if err != nil {
		return nil, "", err
	}
	if !dir.dir {
		return nil, "", pathError(op, name, syscall.ENOTDIR)
	}
	return dir, filepath.Base(filepath.Clean("/" + name)), nil
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func linkError(oldName, newName string, err error) error {
	return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
}
