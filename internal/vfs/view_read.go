package vfs

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Create asks the server: O_EXCL is decided there (and is the one operation that NFS can repeat
// safely, by its verifier).
func (v *View) Create(name string) (File, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.unseen(filepath.Dir(clean(name))) {
		return nil, pathError("open", name, syscall.ENOENT)
	}
	f, err := v.mem.Create(name)
	if err != nil {
		v.taken(name, err)
		return nil, err
	}
	if v.held != nil {
		v.relearn(name, "")
	}
	return &viewWriter{File: f}, nil
}

func (v *View) Open(name string) (File, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.unseen(name) {
		return nil, pathError("open", name, syscall.ENOENT)
	}
	v.mem.mu.Lock()
	defer v.mem.mu.Unlock()
	n, err := v.lookup(name)
	if err != nil {
		return nil, err
	}
	if n.dir {
		return nil, notRegular(name, fs.ModeDir)
	}
	if n.gone {
		return nil, pathError("open", name, syscall.ESTALE)
	}
	// A new node, not linked anywhere, holds what this open sees for as long as it lasts.
	seen := &node{data: bytes.Clone(n.data)}
	return &viewReader{memFile: &memFile{fs: v.mem, node: seen, name: name}, live: n}, nil
}

// lookup finds a name by the client's file handle, or at the server.
func (v *View) lookup(name string) (*node, error) {
	if v.held != nil {
		return v.held[clean(name)].node, nil
	}
	return v.mem.find("open", name)
}

func (v *View) ReadDir(name string) ([]fs.DirEntry, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.held == nil {
		return v.mem.ReadDir(name)
	}
	if v.unseen(name) {
		return nil, pathError("readdir", name, syscall.ENOENT)
	}
	if !v.held[clean(name)].info.IsDir() {
		return nil, pathError("readdir", name, syscall.ENOTDIR)
	}
	var list []fs.DirEntry
	for path, h := range v.held {
		if path != "/" && filepath.Dir(path) == clean(name) {
			list = append(list, fs.FileInfoToDirEntry(h.info))
		}
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

func (v *View) Stat(name string) (fs.FileInfo, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.held == nil {
		return v.mem.Stat(name)
	}
	if v.unseen(name) {
		return nil, pathError("stat", name, syscall.ENOENT)
	}
	return v.held[clean(name)].info, nil
}

func (v *View) SyncDir(name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.unseen(name) {
		return pathError("sync", name, syscall.ENOENT)
	}
	return v.mem.SyncDir(name)
}

func (v *View) Space(name string) (Space, error) {
	space, err := v.mem.Space(name)
	space.Type = "nfs"
	return space, err
}

// viewWriter keeps what is written until Sync or Close, as a client's page cache does.
type viewWriter struct {
	File
	cache []byte
}

func (f *viewWriter) Write(p []byte) (int, error) {
	if _, err := f.File.Stat(); err != nil {
		return 0, err // closed
	}
	f.cache = append(f.cache, p...)
	return len(p), nil
}

func (f *viewWriter) flush() error {
	n, err := f.File.Write(f.cache)
	f.cache = f.cache[n:]
	return err
}

func (f *viewWriter) Sync() error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.File.Sync()
}

// Stat flushes first: so does a client that holds dirty pages.
func (f *viewWriter) Stat() (fs.FileInfo, error) {
	if err := f.flush(); err != nil {
		return nil, err
	}
	return f.File.Stat()
}

func (f *viewWriter) Close() error {
	if err := f.flush(); err != nil {
		_ = f.File.Close()
		return err
	}
	return f.File.Close()
}

// viewReader reads what the file held when it was opened.
type viewReader struct {
	*memFile
	live *node
}

func (f *viewReader) ReadAt(p []byte, off int64) (int, error) {
	if err := f.stale("read"); err != nil {
		return 0, err
	}
	return f.memFile.ReadAt(p, off)
}

func (f *viewReader) Stat() (fs.FileInfo, error) {
	if err := f.stale("stat"); err != nil {
		return nil, err
	}
	return f.memFile.Stat()
}

func (f *viewReader) stale(op string) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.live.gone {
		return pathError(op, f.name, syscall.ESTALE)
	}
	return nil
}
