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
	"path/filepath"

	"ddpbatch/internal/vfs"
)

// buffer gathers small writes; larger ones pass it by without a copy.
const buffer = 64 << 10

// File gives the file at path the bytes that fill writes. It looks at ctx between writes.
func File(ctx context.Context, fsys vfs.FS, path string, fill func(io.Writer) error) error {
	dir := filepath.Dir(path)
	var nonce [4]byte
	rand.Read(nonce[:]) // never fails
	tmp := filepath.Join(dir, ".ddpbatch-"+hex.EncodeToString(nonce[:])+".tmp")
	f, err := fsys.Create(tmp)
	if err != nil {
		return err
	}
	w := &writer{ctx: ctx, w: f}
	if err = finish(f, tmp, w, fill); err == nil {
		err = vfs.Replace(fsys, tmp, path, w.n)
	}
	if err != nil {
		_ = fsys.Remove(tmp) // the first error is the one to tell
		return err
	}
	return fsys.SyncDir(dir)
}

// finish fills, checks, syncs and closes a file. A failed sync is not tried again: the caller abandons the file.
func finish(f vfs.File, path string, w *writer, fill func(io.Writer) error) error {
	buffered := bufio.NewWriterSize(w, buffer)
	err := fill(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = checkLength(f, path, w.n)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close()) // close is on NFS the first to hear of a full disk or quota
}

func checkLength(f vfs.File, path string, want int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != want {
		return fmt.Errorf("%s is %d bytes long after writing %d: %w", path, info.Size(), want, io.ErrShortWrite)
	}
	return nil
}

// writer counts, and stops when ctx ends.
type writer struct {
	ctx context.Context
	w   io.Writer
	n   int64
}

func (w *writer) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, context.Cause(w.ctx)
	}
	n, err := w.w.Write(p)
	w.n += int64(n)
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
