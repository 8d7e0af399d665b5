package data

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/backoff"
	"ddpbatch/internal/vfs"
)

const (
	firstLockRetry = time.Millisecond // pause before a lock is tried for again, doubled each time
	lastLockRetry  = 100 * time.Millisecond

	warnAfter = 5 * time.Second // how long a lock is waited for before a warning
)

// once calls prepare in one of the processes that call it with the same lock, while the others wait. Whether
// anything is left to prepare is what ready says: it is asked before and after the wait, and once it says yes nobody prepares.
// When prepare fails, or its process dies, the next one takes over. ctx ends the wait.
//
// The file is made, locked with flock(2), and stays; in it is who has locked it last. The kernel unlocks it when its holder ends,
// however that happens. On NFS, Linux makes it a lock that holds for all nodes. Where it holds within a node only (NFS
// mounted with local_lock, Lustre with localflock), one process of each node prepares at a time, which must do no harm.
// File systems without locks give an error, and so does a file that another user owns or may write to.
func once(ctx context.Context, l fileLock, ready func() (bool, error), prepare func() error) error {
	if done, err := ready(); done || err != nil {
		return err
	}
	lock, err := l.take(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	if done, err := ready(); done || err != nil {
		return err
	}
	return prepare()
}

// fileLock is what the processes that prepare the same take turns by: a file to lock.
type fileLock struct {
	path string
	open func(flags int) (*os.File, error)
	log  *slog.Logger // nil: silent
}

// take returns the file, locked until it is closed. It does not wait in the kernel, where
// ctx could not end it.
func (l fileLock) take(ctx context.Context) (*os.File, error) {
	var f *os.File
	nobody := func() string { return "a file server's client, or another process, has a lease on it" }
	err := l.untilUnlocked(ctx, nobody, func() (err error) {
		// For writing, as NFS wants for an exclusive lock.
		f, err = l.open(os.O_RDWR | os.O_CREATE | unix.O_NONBLOCK | unix.O_NOFOLLOW)
		return err
	})
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = vfs.CheckOwner(l.path, info) // another user could hold it for ever
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock: %w", err)
	}
	err = l.untilUnlocked(ctx, func() string { return holderOf(f) }, func() error {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return fmt.Errorf("lock %s: %w (choose a folder on a file system that has flock, such as a local disk)", l.path, err)
		}
		return nil
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	sign(f)
	return f, nil
}

// untilUnlocked calls try as long as another process holds the lock of the file or, as Samba and the kernel's NFS server
// do for their clients, a lease on it, which makes a first open fail and is asked back by it (fcntl(2), F_SETLEASE).
func (l fileLock) untilUnlocked(ctx context.Context, holder func() string, try func() error) error {
	began, named := time.Now(), ""
	for tries := (backoff.Backoff{First: firstLockRetry, Most: lastLockRetry}); ; {
		err := try()
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		// Once for each holder: who wrote again and again would not be found to hang.
		if waited := time.Since(began); l.log != nil && waited >= warnAfter {
			if now := holder(); now != named {
				l.log.Warn("waiting for another process to prepare the data", "seconds", int(waited.Seconds()),
					"lock", l.path, "holder", now)
				named = now
			}
		}
		if err := tries.Wait(ctx); err != nil {
			return fmt.Errorf("%w, and another process holds the lock of %s: %s", err, l.path, holder())
		}
	}
}

// maxSignature bounds what is read of a lock's file.
const maxSignature = 128

var signature = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^process [1-9][0-9]{0,9} of [0-9A-Za-z._-]{1,64}$`) })

// sign writes into the file that this process has locked who that is, unless it holds what this did not write. Where it cannot, the
// others do not learn it.
func sign(f *os.File) {
	host, err := os.Hostname()
	info, ierr := f.Stat()
	if err != nil || ierr != nil || info.Size() > 0 && holderOf(f) == unsigned || f.Truncate(0) != nil {
		return
	}
	_, _ = f.WriteAt(fmt.Appendf(nil, "process %d of %s", os.Getpid(), host), 0)
}

const unsigned = "it has not written who it is"

// holderOf is who has locked a file, by what is written in it.
func holderOf(f *os.File) string {
	text := make([]byte, maxSignature)
	n, _ := f.ReadAt(text, 0) // what cannot be read is no signature
	if !signature().Match(text[:n]) {
		return unsigned
	}
	return string(text[:n])
}
