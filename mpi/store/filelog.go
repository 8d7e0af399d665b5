package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// logState is how far the file was read.
type logState struct {
	pin    *os.File // the file, open as long as it is the one that was read; nil: none
	read   int64    // bytes, all of them whole records
	closed int64    // processes that have closed the file
}

// refresh brings the view up to date with the file, at one moment. The caller holds a lock on the file: so a
// record that is incomplete is that of a process that died, and stays unread.
func (f *File) refresh(ctx context.Context, file *os.File) error {
	size, err := f.identify(file)
	if err != nil {
		return err
	}
	if size > maxFile {
		return fmt.Errorf("%s has %d bytes, more than %d: %w", f.path, size, maxFile, ErrFull)
	}
	r := bufio.NewReaderSize(io.NewSectionReader(file, f.log.read, size-f.log.read), 64<<10)
	f.view.mu.Lock()
	defer f.view.mu.Unlock()
	for f.log.read < size {
		key, value, n, err := readRecord(r, size-f.log.read)
		if errors.Is(err, errTorn) || err == io.EOF { // EOF: somebody who holds no lock cut it
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = f.apply(key, value)
		}
		if err != nil {
			return fmt.Errorf("%s, record at byte %d: %w", f.path, f.log.read, err)
		}
		f.log.read += n
	}
	return nil
}

// identify returns the file's size. A file that is another one than before, or shorter, is read from its beginning.
func (f *File) identify(file *os.File) (int64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, irregular(f.path, info)
	}
	switch {
	case !f.pinned(info):
		f.forget(file)
	case info.Size() < f.log.read:
		f.forget(f.log.pin)
	}
	return info.Size(), nil
}

// pinned tells whether the file with info is the one that was read. An inode's number says so only while that file is
// open: ext4 gives the number of one that is gone to the next that is made. (On NFS another machine may remove it all
// the same; fstat(2) then fails with ESTALE.)
func (f *File) pinned(info os.FileInfo) bool {
	if f.log.pin == nil {
		return false
	}
	before, err := f.log.pin.Stat()
	return err == nil && os.SameFile(before, info)
}

// forget begins anew, with the file that pin has open, or with none.
func (f *File) forget(pin *os.File) {
	if pin == nil && f.log == (logState{}) {
		return
	}
	if f.log.pin != nil && f.log.pin != pin {
		f.log.pin.Close()
	}
	f.log = logState{pin: pin}
	f.view.clear()
}

// apply makes a record's change to the view, whose mu is held.
func (f *File) apply(key string, value []byte) error {
	switch {
	case key == closedKey:
		closed, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || closed < 0 {
			return fmt.Errorf("%q for a number of processes: %w", value, ErrMalformedFile)
		}
		f.log.closed = closed
	case strings.HasPrefix(key, deleteMark):
		_, err := f.view.drop(key[len(deleteMark):])
		return err
	case key != "" && key[0] == keyMark:
		return f.view.accept(key[1:], value)
	}
	return nil
}

// accept is put for what is in the file already. Between the records of a MultiSet that fits as a whole, the store
// may be over its limits. mu is held.
func (m *memory) accept(key string, value []byte) error {
	if err := m.usable(key); err != nil {
		return err
	}
	if len(m.values) >= m.maxKeys+MaxRequestKeys || m.size+len(key)+len(value) > m.maxBytes+MaxTogether {
		return fmt.Errorf("%w: it holds %d keys and %d bytes", ErrFull, len(m.values), m.size)
	}
	m.keep(key, value)
	return nil
}

// append adds whole records to the file, on which the caller holds the exclusive lock, or leaves it as
// it was. What a process that died has left of a record makes room.
func (f *File) append(file *os.File, records []byte) error {
	err := file.Truncate(f.log.read)
	if err == nil {
		_, err = file.WriteAt(records, f.log.read)
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, file.Truncate(f.log.read))
}
