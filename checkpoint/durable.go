package checkpoint

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"ddpbatch/internal/vfs"
)

const (
	// writeBuffer gathers headers and small chunks; a large one passes it by.
	writeBuffer = 64 << 10
	// writebackBytes is how much is written before the disk is asked to begin with it.
	writebackBytes = 8 << 20
)

// durable is one file on its way to the disk.
type durable struct {
	d            *Dir
	dir          string
	tmp, name    string
	size         int64        // what it will have, to be preallocated; 0: not known
	beforeRename func() error // nil: nothing to ask
	patient      bool         // the folder is another client's, and may take a moment to show
	replaces     bool         // there may be a file of that name, whose place it takes

	written   int64
	writeTime time.Duration // in write(2)
	syncTime  time.Duration // sync, close, rename, sync of the folder
}

// write puts the file into its folder so that it is there whole or not at all, and durably once
// this returns nil: temporary name in the same folder, room reserved, write, length check, sync,
// close, beforeRename, rename, sync of the folder. On an error before that last sync the
// temporary file is removed (under the fence); after a failed sync it is abandoned like that too,
// never synced again.
func (w *durable) write(ctx context.Context, fill func(io.Writer) error) error {
	path := filepath.Join(w.dir, w.tmp)
	f, err := w.create(ctx, path)
	if err != nil {
		return err
	}
	err = w.fill(f, path, fill)
	begin := w.d.now()
	if err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil { // on NFS close may be the first to hear of a full quota
		err = closing
	}
	if err == nil && w.beforeRename != nil {
		err = w.beforeRename()
	}
	if err == nil {
		err = w.rename(path)
	}
	if err != nil {
		w.d.discard(path)
		return err
	}
	err = w.d.fs.SyncDir(w.dir)
	w.syncTime = w.d.now().Sub(begin)
	return err
}

func (w *durable) rename(path string) error {
	rename := vfs.Rename
	if w.replaces {
		rename = vfs.Replace
	}
	return rename(w.d.fs, path, filepath.Join(w.dir, w.name), w.written)
}

// writeBytes is write with these bytes.
func (w *durable) writeBytes(ctx context.Context, data []byte) error {
	return w.write(ctx, func(to io.Writer) error {
		_, err := to.Write(data)
		return err
	})
}

func (w *durable) create(ctx context.Context, path string) (f vfs.File, err error) {
	if !w.patient {
		return w.d.fs.Create(path)
	}
	err = w.d.retry(ctx, func() error { f, err = w.d.fs.Create(path); return err })
	return f, err
}

// fill writes, and compares the file's length with what was written.
func (w *durable) fill(f vfs.File, path string, fill func(io.Writer) error) error {
	if w.size > 0 {
		if err := f.Preallocate(w.size); err != nil {
			return err
		}
	}
	buf := bufio.NewWriterSize(&steadyWriter{file: f, w: w}, writeBuffer)
	if err := fill(buf); err != nil {
		return err
	}
	if err := buf.Flush(); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != w.written {
		return fmt.Errorf("%s is %d bytes long after writing %d: %w", path, info.Size(), w.written, io.ErrShortWrite)
	}
	return nil
}

// steadyWriter has the disk work while there is more to come, so that the sync finds little left.
type steadyWriter struct {
	file    vfs.File
	w       *durable
	started int64 // so much is on its way to the disk
}

func (s *steadyWriter) Write(p []byte) (int, error) {
	begin := s.w.d.now()
	n, err := s.file.Write(p)
	s.w.written += int64(n)
	// Up to a whole MiB: the next write would have to wait for a page of which it writes the rest.
	if ready := s.w.written&^(1<<20-1) - s.started; err == nil && ready >= writebackBytes {
		s.file.StartWriteback(s.started, ready)
		s.started += ready
	}
	s.w.writeTime += s.w.d.now().Sub(begin)
	return n, err
}

// discard removes a file that a save that did not succeed has left. Where that fails, or the
// attempt is fenced, it stays for a later attempt to sweep; the save's own error says more.
func (d *Dir) discard(path string) {
	if err := d.remove(path); err != nil {
		d.log.Warn("leftover of an unfinished save stays", "path", path, "err", err)
	}
}
