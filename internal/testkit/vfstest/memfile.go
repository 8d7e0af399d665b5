package vfstest

import (
	"bytes"
	"io"
	"io/fs"
	"syscall"
	"time"
)

// memFile is an open file of a Mem.
type memFile struct {
	fs       *Mem
	node     *node
	name     string
	writable bool
	closed   bool
}

func (f *memFile) Write(p []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usable("write", !f.writable); err != nil {
		return 0, err
	}
	n := len(p)
	if spare := f.node.reserved - int64(len(f.node.data)); spare < int64(n) {
		n = int(min(int64(n), max(0, spare)+f.fs.room()))
	}
	f.node.data = append(f.node.data, p[:n]...)
	if n < len(p) {
		return n, pathError("write", f.name, syscall.ENOSPC)
	}
	return n, nil
}

func (f *memFile) Preallocate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usable("preallocate", !f.writable); err != nil {
		return err
	}
	has := max(int64(len(f.node.data)), f.node.reserved)
	if size-has > f.fs.room() {
		return pathError("preallocate", f.name, syscall.ENOSPC)
	}
	f.node.reserved = max(f.node.reserved, size)
	return nil
}

// StartWriteback does nothing: in a Mem a block is durable after Sync, or by chance.
func (f *memFile) StartWriteback(_, _ int64) {}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usable("read", f.writable); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, syscall.EINVAL)
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usable("sync", false); err != nil {
		return err
	}
	f.node.synced = bytes.Clone(f.node.data)
	return nil
}

func (f *memFile) Stat() (fs.FileInfo, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usable("stat", false); err != nil {
		return nil, err
	}
	return f.node.info(f.name), nil
}

func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.usable("close", false)
	f.closed = true
	return err
}

// usable returns an error for a closed file, and for one that was opened for the other direction.
func (f *memFile) usable(op string, wrongWay bool) error {
	if f.closed {
		return pathError(op, f.name, fs.ErrClosed)
	}
	if wrongWay {
		return pathError(op, f.name, syscall.EBADF)
	}
	return nil
}

// memInfo describes a node. Mem keeps no times.
type memInfo struct {
	name string
	size int64
	dir  bool
}

func (n *node) info(name string) fs.FileInfo {
	return memInfo{name: name, size: int64(len(n.data)), dir: n.dir}
}

func (i memInfo) Name() string { return i.name }

func (i memInfo) Size() int64 { return i.size }

func (i memInfo) ModTime() time.Time { return time.Time{} }

func (i memInfo) IsDir() bool { return i.dir }

func (i memInfo) Sys() any { return nil }

func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
