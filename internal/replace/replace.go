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

// Options say how a file is put under its name. The zero value replaces what has the name.
type Options struct {
	Temp string      // the temporary file's name, in the same folder; empty: .ddpbatch-XXXXXXXX.tmp
	Mode fs.FileMode // of the file, whatever the umask is, for vfs.OS alone; 0: what the file system gives new files
	Size int64       // room to reserve before the first byte, so that a full disk shows at once; 0: not known

	// New says that nothing has the name, and that nobody else gives it to anything: a rename whose reply got lost is then always known
	// to have happened (vfs.Rename).
	New bool
	// Keep leaves a file alone that has the name already, and the error is fs.ErrExist: by link(2), for vfs.OS alone.
	Keep bool
	// NoSync leaves it to the file's readers to find out what a power cut has made of it.
	NoSync bool
	// BeforeRename, unless nil, is asked once the temporary file is durable. Its error is File's.
	BeforeRename func() error
}

const (
	// bufferBytes gathers small writes; larger ones pass it by without a copy.
	bufferBytes = 64 << 10
	// writebackBytes is how much is written before the disk is asked to begin with it.
	writebackBytes = 8 << 20
)

// File gives the file at path the bytes that fill writes. It looks at ctx between writes.
func File(ctx context.Context, fsys vfs.FS, path string, fill func(io.Writer) error) error {
	return FileWith(ctx, fsys, path, Options{}, fill)
}

// FileWith is File with options.
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
	if closing := f.Close(); err == nil { // which is on NFS the first to hear of a full disk or quota
		err = closing
	}
	if err == nil && o.BeforeRename != nil {
		err = o.BeforeRename()
	}
	if err == nil {
		err = o.name(fsys, temp, path, w.written)
	}
	if err != nil || o.Keep {
		_ = fsys.Remove(temp) // the first error is the one to tell
	}
	if err != nil || o.NoSync {
		return err
	}
	return fsys.SyncDir(dir)
}

// Bytes is what writes data, for File.
func Bytes(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// write fills, checks and syncs the temporary file. A failed sync is not tried again: the file is abandoned.
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

// writer counts, stops when ctx ends, and has the disk work while there is more to come, so that the sync finds little left.
type writer struct {
	ctx       context.Context
	file      vfs.File
	writeback bool
	written   int64
	started   int64 // so much is on its way to the disk
}

func (w *writer) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	n, err := w.file.Write(p)
	w.written += int64(n)
	// Up to a whole MiB: the next write would have to wait for a page of which it writes the rest.
	if ready := w.written&^(1<<20-1) - w.started; w.writeback && err == nil && ready >= writebackBytes {
		w.file.StartWriteback(w.started, ready)
		w.started += ready
	}
	return n, err
}

// Dir makes a folder, and its parents, where they are not there yet, and makes its name durable. It may be there from a process that
// died before its sync, so the parent is synced in any case.
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
