package vfstest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"ddpbatch/internal/vfs"
)

// Mem is a file system in memory. Relative and absolute names mean the same: both start at its root, which always exists. It keeps what a
// reader sees, and what a sync has made durable.
type Mem struct {
	mu    sync.Mutex
	root  *node
	limit int64 // bytes of space; 0: no limit
}

var _ vfs.FS = (*Mem)(nil)

// node is a file or a directory. A file's synced and a directory's durable certainly survive a power cut.
type node struct {
	dir          bool
	data, synced []byte
	reserved     int64 // bytes preallocated
	gone         bool  // a file or directory that no longer has a name
	nameDurable  bool  // a directory whose name was durable at some time
	entries      map[string]*node
	durable      map[string]*node
}

// NewMem returns an empty file system.
func NewMem() *Mem { return &Mem{root: newDir()} }

func newDir() *node {
	return &node{dir: true, entries: map[string]*node{}, durable: map[string]*node{}}
}

// SetLimit limits the space for the content of files to a number of bytes; 0 removes the limit. Existing content stays, even if it exceeds
// the limit.
func (m *Mem) SetLimit(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = bytes
}

func (m *Mem) Create(name string) (vfs.File, error) {
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

func (m *Mem) Open(name string) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("open", name)
	if err != nil {
		return nil, err
	}
	if n.dir {
		return nil, pathError("open", name, errFolder)
	}
	return &memFile{fs: m, node: n, name: name}, nil
}

// Rename moves a file or a whole directory. Like os.Rename, and unlike rename(2), it does not replace an empty directory.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, oldBase, err := m.parent("rename", oldName)
	if err != nil {
		return err
	}
	to, newBase, err := m.parent("rename", newName)
	if err != nil {
		return err
	}
	n, target := from.entries[oldBase], to.entries[newBase]
	switch {
	case n == nil:
		return linkError(oldName, newName, syscall.ENOENT)
	case n == target && !n.dir:
		return nil
	case target != nil && target.dir:
		return linkError(oldName, newName, syscall.EEXIST)
	case target != nil && n.dir:
		return linkError(oldName, newName, syscall.ENOTDIR)
	case n.dir && n.holds(to):
		return linkError(oldName, newName, syscall.EINVAL)
	}
	if target != nil {
		target.gone = true
	}
	delete(from.entries, oldBase)
	to.entries[newBase] = n
	return nil
}

// holds reports whether a directory is n itself or is below it.
func (n *node) holds(dir *node) bool {
	if n == dir {
		return true
	}
	for _, child := range n.entries {
		if child.dir && child.holds(dir) {
			return true
		}
	}
	return false
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

// unlink removes a name from its directory, unless refuse returns an error.
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
		child.nameDurable = true
	}
	return nil
}

// Space counts the files that have a name, each with its content or its reserved space.
func (m *Mem) Space(name string) (vfs.Space, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.find("space", name); err != nil {
		return vfs.Space{}, err
	}
	total := int64(memTotal)
	if m.limit > 0 {
		total = m.limit
	}
	return vfs.Space{Type: "mem", Free: uint64(max(0, total-m.root.used())), Total: uint64(total)}, nil
}

// memTotal is the size that a Mem without a limit reports.
const memTotal = 1 << 50

// room returns how many bytes are free.
func (m *Mem) room() int64 {
	if m.limit <= 0 {
		return memTotal
	}
	return max(0, m.limit-m.root.used())
}

func (n *node) used() int64 {
	sum := max(int64(len(n.data)), n.reserved)
	for _, child := range n.entries {
		sum += child.used()
	}
	return sum
}

// find looks up a name.
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

// parent looks up the directory of a name.
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

// errFolder is what the operating system's Open returns for a directory.
var errFolder = fmt.Errorf("%w but a folder", vfs.ErrNotRegular)

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func linkError(oldName, newName string, err error) error {
	return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
}
