package replace

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"ddpbatch/internal/vfs"
)

// Options control how File writes a file. The zero value replaces an existing file.
type Options struct {
	Temp string      // the temporary file's name, in the same directory; empty: .ddpbatch-XXXXXXXX.tmp
	Mode fs.FileMode // of the file, whatever the umask is; only for vfs.OS; 0: the file system's default for new files
	Size int64       // bytes to reserve before the first write, so that a full disk is noticed at once; 0: not known

	// New says that the path does not exist and that no other process creates it. If the reply to a rename is lost, it is then always known
	// whether the rename happened (vfs.Rename).
	New bool
	// Keep leaves an existing file alone; the error is then fs.ErrExist. It uses link(2) and works only for vfs.OS.
	Keep bool
	// NoSync omits the syncs. Readers must then check the file themselves after a power cut.
	NoSync bool
	// BeforeRename is called after the temporary file is durable, unless it is nil. If it returns an error, File returns that and does not
	// rename.
	BeforeRename func() error
}

const (
	// bufferBytes is the size of the buffer for small writes; larger writes bypass it without a copy.
	bufferBytes = 64 << 10
	// writebackBytes is the number of bytes written before the kernel is asked to write them to the disk.
	writebackBytes = 8 << 20
)

// File writes the file at path with the bytes that fill writes. It checks ctx between writes.
func File(ctx context.Context, fsys vfs.FS, path string, fill func(io.Writer) error) error {
	return FileWith(ctx, fsys, path, Options{}, fill)
}

// FileWith does what File does, with options.
func FileWith(ctx context.Context, fsys vfs.FS, path string, o Options, fill func(io.Writer) error) error {
	dir := filepath.Dir(path)
	if o.Temp == "" {
		var nonce [4]byte
		rand.Read(nonce[:]) // never fails
		o.Temp = ".ddpbatch-" + hex.EncodeToString(nonce[:]) + ".tmp"
	}
	temp := filepath.Join(dir, o.Temp)
	create := fsys.Create
	if o.Mode != 0 {
		create = func(name string) (vfs.File, error) { return vfs.CreateMode(name, o.Mode) }
	}
	f, err := create(temp)
	if err != nil {
		return err
	}
	w := &writer{ctx: ctx, file: f, writeback: !o.NoSync}
	err = o.write(w, temp, fill)
	if closing := f.Close(); err == nil { // on NFS the close is the first call to report a full disk or quota
		err = closing
	}
	if err == nil && o.BeforeRename != nil {
		err = o.BeforeRename()
	}
	if err == nil {
		err = o.name(fsys, temp, path, w.written)
	}
	if err != nil || o.Keep {
		_ = fsys.Remove(temp) // the first error is the one to return
	}
	if err != nil || o.NoSync {
		return err
	}
	return fsys.SyncDir(dir)
}

// Bytes returns a function that writes data, for File.
func Bytes(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// write fills, checks and syncs the temporary file. A failed sync is not repeated: the file is abandoned.
func (o *Options) write(w *writer, temp string, fill func(io.Writer) error) error {
	if o.Size > 0 {
		if err := w.file.Preallocate(o.Size); err != nil {
			return err
		}
	}
	buffered := bufio.NewWriterSize(w, bufferBytes)
	if err := fill(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	info, err := w.file.Stat()
	switch {
	case err != nil:
		return err
	case info.Size() != w.written:
		return fmt.Errorf("%s is %d bytes long after writing %d: %w", temp, info.Size(), w.written, io.ErrShortWrite)
	case o.NoSync:
		return nil
	}
	return w.file.Sync()
}

func (o *Options) name(fsys vfs.FS, temp, path string, size int64) error {
	switch {
	case o.Keep:
		return os.Link(temp, path)
	case o.New:
		return vfs.Rename(fsys, temp, path, size)
	}
	return vfs.Replace(fsys, temp, path, size)
}

// writer counts bytes, stops when ctx ends, and starts writeback early, so that little is left for the sync.
type writer struct {
	ctx       context.Context
	file      vfs.File
	writeback bool
	written   int64
	started   int64 // bytes whose writeback has started
}

func (w *writer) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	n, err := w.file.Write(p)
	w.written += int64(n)
	// Only whole MiB: otherwise the next write would have to wait for the writeback of the page that it completes.
	if ready := w.written&^(1<<20-1) - w.started; w.writeback && err == nil && ready >= writebackBytes {
		w.file.StartWriteback(w.started, ready)
		w.started += ready
	}
	return n, err
}

// Dir creates a directory and its parents if they do not exist, and makes its name durable. It syncs the parent in any case, because an
// existing directory may come from a process that died before its sync.
func Dir(fsys vfs.FS, path string) error {
	err := fsys.Mkdir(path)
	if parent := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && parent != path {
		if err := Dir(fsys, parent); err != nil {
			return err
		}
		err = fsys.Mkdir(path)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}
