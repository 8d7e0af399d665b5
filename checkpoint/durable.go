package checkpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"ddpbatch/internal/vfs"
)

// writeBuffer gathers the chunks of small tensors; a full chunk passes it by.
const writeBuffer = 64 << 10

// writeFile puts a file into dir so that it is there whole or not at all, and durably once this
// returns nil: temporary name in the same folder, write, length check, sync, close, beforeRename,
// rename, sync of the folder. On an error before that last sync the temporary file is removed
// (under the fence); after a failed sync it is abandoned like that too, never synced again.
func (d *Dir) writeFile(dir, tmp, name string, beforeRename func() error, fill func(io.Writer) error) error {
	tmpPath := filepath.Join(dir, tmp)
	f, err := d.fs.Create(tmpPath)
	if err != nil {
		return err
	}
	err = fillFile(f, tmpPath, fill)
	if err == nil {
		err = beforeRename()
	}
	if err == nil {
		err = d.fs.Rename(tmpPath, filepath.Join(dir, name))
	}
	if err != nil {
		d.discard(tmpPath)
		return err
	}
	return d.fs.SyncDir(dir)
}

// fillFile writes, compares the file's length with what was written, syncs and closes.
func fillFile(f vfs.File, path string, fill func(io.Writer) error) error {
	if err := writeAll(f, path, fill); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	return f.Close() // on NFS the first to hear of a full disk or quota
}

func writeAll(f vfs.File, path string, fill func(io.Writer) error) error {
	counter := &countingWriter{w: f}
	buf := bufio.NewWriterSize(counter, writeBuffer)
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
	if info.Size() != counter.n {
		return fmt.Errorf("%s is %d bytes long after writing %d: %w", path, info.Size(), counter.n, io.ErrShortWrite)
	}
	return nil
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// discard removes a file that a save that did not succeed has left. Where that fails, or the
// attempt is fenced, it stays for a later attempt to sweep; the save's own error says more.
func (d *Dir) discard(path string) {
	if err := d.remove(path); err != nil {
		d.log.Warn("leftover of an unfinished save stays", "path", path, "err", err)
	}
}

// makeDir makes a folder, and its parents, where they are not there yet, and makes its name
// durable. It may be there from an attempt that died before its sync, so the parent is synced in
// any case.
func (d *Dir) makeDir(path string) error {
	err := d.fs.Mkdir(path)
	if parent := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && parent != path {
		if err := d.makeDir(parent); err != nil {
			return err
		}
		err = d.fs.Mkdir(path)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.fs.SyncDir(filepath.Dir(path))
}
