package store

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/backoff"
	"ddpbatch/internal/vfs"
)

// maxFile bounds a File's log: it only grows, and each process that opens it reads all of it.
const maxFile = 2 << 30

// logState is how far a process has read the file.
type logState struct {
	file   *os.File // the file that was read, kept open; nil: none
	read   int64    // bytes, all of them whole records
	closed int64    // how many processes have closed the file
}

// refresh brings the view up to date with the file, at one moment. The caller holds a lock on the file. So an incomplete record
// comes from a process that died, and is not read.
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
		if errors.Is(err, errTorn) || err == io.EOF { // EOF: a process without the lock has cut the file
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

// identify returns the file's size. If the file is another one than before, or shorter, it will be read from the beginning.
func (f *File) identify(file *os.File) (int64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, irregularError(f.path, info)
	}
	switch {
	case !f.isCurrent(info):
		f.reset(file)
	case info.Size() < f.log.read:
		f.reset(f.log.file)
	}
	return info.Size(), nil
}

// isCurrent reports whether the file with info is the one that was read. An inode number identifies a file only while it is open:
// ext4 reuses the number of a removed file for the next new one. (On NFS, another machine may remove the file nevertheless;
// fstat(2) then fails with ESTALE.)
func (f *File) isCurrent(info os.FileInfo) bool {
	if f.log.file == nil {
		return false
	}
	before, err := f.log.file.Stat()
	return err == nil && os.SameFile(before, info)
}

// reset starts from an empty view, with an open file or none.
func (f *File) reset(file *os.File) {
	if file == nil && f.log == (logState{}) {
		return
	}
	if f.log.file != nil && f.log.file != file {
		f.log.file.Close()
	}
	f.log = logState{file: file}
	f.view.clear()
}

// apply applies a record to the view, whose mu is held.
func (f *File) apply(key string, value []byte) error {
	switch {
	case key == closedKey:
		closed, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || closed < 0 {
			return fmt.Errorf("%q as a number of processes: %w", value, ErrMalformedFile)
		}
		f.log.closed = closed
	case strings.HasPrefix(key, deleteMark):
		_, err := f.view.drop(key[len(deleteMark):])
		return err
	case key != "" && key[0] == keyMark:
		return f.view.acceptRecord(key[1:], value)
	}
	return nil
}

// acceptRecord is put for a record that is in the file already. Between the records of a MultiSet that fits as a whole, the store
// may exceed its limits. mu is held.
func (m *memory) acceptRecord(key string, value []byte) error {
	if err := m.usable(key); err != nil {
		return err
	}
	if len(m.values) >= m.maxKeys+MaxRequestKeys || m.size+len(key)+len(value) > m.maxBytes+MaxTogether {
		return fmt.Errorf("%w: it holds %d keys and %d bytes", ErrFull, len(m.values), m.size)
	}
	m.keep(key, value)
	return nil
}

// appendRecords appends whole records to the file, or leaves it as it was. The caller holds the exclusive lock. A partial record of
// a process that died is overwritten.
func (f *File) appendRecords(file *os.File, records []byte) error {
	err := file.Truncate(f.log.read)
	if err == nil {
		_, err = file.WriteAt(records, f.log.read)
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, file.Truncate(f.log.read))
}

// These are the locks of flock(2), which PyTorch's FileStore uses, too.
const (
	shared    = unix.LOCK_SH
	exclusive = unix.LOCK_EX
)

const (
	firstLockRetry = 100 * time.Microsecond // the first pause before another try to lock
	lastLockRetry  = 10 * time.Millisecond  // pauses grow up to this
)

// lock opens the file and locks it, until unlock. It does not wait in the kernel: if a process was stopped while it holds the lock,
// ctx could not end such a wait.
func (f *File) lock(ctx context.Context, flags, kind int) (*os.File, error) {
	for wait := (backoff.Backoff{First: firstLockRetry, Most: lastLockRetry}); ; {
		file, err := f.tryLock(flags, kind)
		if file != nil || err != nil {
			return file, err
		}
		if err := wait.Wait(ctx); err != nil {
			return nil, fmt.Errorf("%w, and another process holds the lock of %s", err, f.path)
		}
	}
}

// unlock releases the lock, and closes the file unless it is the one that is kept open.
func (f *File) unlock(file *os.File) {
	if file != f.log.file {
		file.Close()
		return
	}
	if lockErr, err := flock(file, unix.LOCK_UN); lockErr != nil || err != nil {
		f.reset(nil) // closing the file releases the lock, too
	}
}

// tryLock is lock without waiting. It returns nil if another process has the lock.
func (f *File) tryLock(flags, kind int) (*os.File, error) {
	// Without O_NONBLOCK, opening a FIFO would wait for its other end. A link may be another user's, and lead to any file of this user.
	file, err := os.OpenFile(f.path, flags|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a link: name the file that it leads to", f.path)
	}
	if errors.Is(err, syscall.EAGAIN) {
		// Another process, such as Samba or the kernel's NFS server, holds a lease on the file, and is now asked to release it
		// (fcntl(2), F_SETLEASE).
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	locked, err := f.lockIfCurrent(file, kind)
	if err != nil || !locked {
		file.Close()
		return nil, err
	}
	return file, nil
}

// lockIfCurrent reports whether it has locked file, and file is still the one at the path.
func (f *File) lockIfCurrent(file *os.File, kind int) (bool, error) {
	lockErr, err := flock(file, kind|unix.LOCK_NB)
	switch {
	case err != nil:
		return false, err
	case errors.Is(lockErr, unix.EWOULDBLOCK):
		return false, nil
	case lockErr != nil:
		return false, fmt.Errorf("lock %s: %w (the file must be on a file system that supports flock)", f.path, lockErr)
	}
	here, err := file.Stat()
	if err != nil {
		return false, err
	}
	if !vfs.Trusted(here) {
		return false, fmt.Errorf("%s: %w: it belongs to the user with the id %d; name a file in a folder of your own",
			f.path, vfs.ErrExposed, vfs.Owner(here))
	}
	there, err := os.Stat(f.path)
	return err == nil && os.SameFile(here, there), nil // otherwise the last worker has removed it
}

// flock calls flock(2). err means that it could not be called.
func flock(file *os.File, how int) (lockErr, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	err = raw.Control(func(fd uintptr) {
		for {
			if lockErr = unix.Flock(int(fd), how); lockErr != unix.EINTR {
				return
			}
		}
	})
	return lockErr, err
}

// A record of the file is a key and its new value, each preceded by its length (4 bytes, little-endian: PyTorch writes in the
// host's order, and supports no other hosts). A user's key k is "/k" in the file; "-/k" means that k was deleted. All other keys
// are FileStore's own. (torch/csrc/distributed/c10d/FileStore.cpp.)
const (
	keyMark    = '/'
	deleteMark = "-/"
	closedKey  = "cleanup/" // decimal: how many processes have closed the file

	maxRecordKey = int64(MaxKey + len(deleteMark))
)

// errTorn means that the file ends in the middle of a record.
var errTorn = errors.New("the record is incomplete")

// appendRecord appends a record to buf. key is the key in the file.
func appendRecord(buf []byte, key string, value []byte) []byte {
	buf = append(binary.LittleEndian.AppendUint32(buf, uint32(len(key))), key...)
	return append(binary.LittleEndian.AppendUint32(buf, uint32(len(value))), value...)
}

// readRecord reads one record, and returns its size in bytes. left is how many bytes of the file are left. At the end of the file
// between two records, the error is io.EOF. A complete record that exceeds this store's limits, as PyTorch may write it, is
// ErrTooLarge.
func readRecord(r *bufio.Reader, left int64) (key string, value []byte, size int64, err error) {
	if _, err := r.Peek(1); err == io.EOF {
		return "", nil, 0, io.EOF
	}
	text, err := readField(r, maxRecordKey, func(n int64) error { return largeKey(r, n, left-4) })
	if err != nil {
		return "", nil, 0, fmt.Errorf("its key: %w", err)
	}
	key, size = string(text), int64(4+len(text)+4)
	value, err = readField(r, MaxValue, func(n int64) error { return largeValue(key, n, left-size) })
	if err != nil {
		return "", nil, 0, fmt.Errorf("its value: %w", err)
	}
	return key, value, size + int64(len(value)), nil
}

// largeKey and largeValue return the error for a length over the limit: if left bytes of the file have room for so many, it is a
// field's; otherwise this is not a record.
func largeKey(r *bufio.Reader, n, left int64) error {
	if n > left {
		return fmt.Errorf("it has %d bytes, more than %d: %w", n, maxRecordKey, ErrMalformedFile)
	}
	begin, err := r.Peek(1 + namedBytes + 1) // enough for quote to show that there is more
	if err != nil {
		return asTorn(err)
	}
	return fmt.Errorf("%s has %d bytes, more than %d: %w", userKey(string(begin)), n-1, MaxKey, ErrTooLarge)
}

func largeValue(key string, n, left int64) error {
	if n > left {
		return fmt.Errorf("it has %d bytes, more than %d: %w", n, MaxValue, ErrMalformedFile)
	}
	return fmt.Errorf("that of %s has %d bytes, more than %d: %w", userKey(key), n, MaxValue, ErrTooLarge)
}

// userKey formats a record's key as its users call it.
func userKey(key string) string { return quote(strings.TrimPrefix(key, string(keyMark))) }

// readField reads a length and that many bytes. For a length over most, it returns large's error.
func readField(r *bufio.Reader, most int64, large func(size int64) error) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, asTorn(err)
	}
	size := int64(binary.LittleEndian.Uint32(head[:]))
	if size > most {
		return nil, large(size)
	}
	field := make([]byte, size)
	if _, err := io.ReadFull(r, field); err != nil {
		return nil, asTorn(err)
	}
	return field, nil
}

// asTorn distinguishes the end of the file from a failing disk.
func asTorn(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errTorn
	}
	return err
}
