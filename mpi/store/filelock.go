package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/vfs"
)

// The locks of flock(2), which PyTorch's FileStore takes, too.
const (
	shared    = unix.LOCK_SH
	exclusive = unix.LOCK_EX
)

const (
	firstLockRetry = 100 * time.Microsecond // pause before a lock is tried for again, doubled each time
	lastLockRetry  = 10 * time.Millisecond
)

// lock opens the file and locks it, until unlock. It does not wait in the kernel, as a
// process that was stopped with the lock would hold up ctx there.
func (f *File) lock(ctx context.Context, flags, kind int) (*os.File, error) {
	for pause := firstLockRetry; ; pause = min(2*pause, lastLockRetry) {
		file, err := f.tryLock(flags, kind)
		if file != nil || err != nil {
			return file, err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w, and another process holds the lock of %s", ctx.Err(), f.path)
		}
	}
}

// unlock ends a lock, and closes the file unless it is the pin.
func (f *File) unlock(file *os.File) {
	if file != f.log.pin {
		file.Close()
		return
	}
	if lockErr, err := flock(file, unix.LOCK_UN); lockErr != nil || err != nil {
		f.forget(nil) // closing it ends the lock, too
	}
}

// tryLock is lock without waiting; nil: not yet.
func (f *File) tryLock(flags, kind int) (*os.File, error) {
	// Without O_NONBLOCK, opening a FIFO would wait for its other end. A link may be another user's, and lead to any file of this user's.
	file, err := os.OpenFile(f.path, flags|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a link: name the file that it leads to", f.path)
	}
	if errors.Is(err, syscall.EAGAIN) {
		return nil, nil // another process holds a lease on it, as Samba and the kernel's NFS server do, and is now asked for it back (fcntl(2), F_SETLEASE)
	}
	if err != nil {
		return nil, err
	}
	locked, err := f.holds(file, kind)
	if err != nil || !locked {
		file.Close()
		return nil, err
	}
	return file, nil
}

// holds tells whether file could be locked, and is still the one at the path.
func (f *File) holds(file *os.File, kind int) (bool, error) {
	lockErr, err := flock(file, kind|unix.LOCK_NB)
	switch {
	case err != nil:
		return false, err
	case errors.Is(lockErr, unix.EWOULDBLOCK):
		return false, nil
	case lockErr != nil:
		return false, fmt.Errorf("lock %s: %w (the file must be on a file system that has flock)", f.path, lockErr)
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
	return err == nil && os.SameFile(here, there), nil // else the last worker has removed it
}

// flock calls flock(2). err says that it could not be called.
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
