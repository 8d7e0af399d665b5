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
	firstLockRetry = time.Millisecond // pause before the first retry of a lock, doubled each time
	lastLockRetry  = 100 * time.Millisecond

	warnAfter = 5 * time.Second // how long to wait for a lock before a warning
)

// once calls prepare in one of the processes that call it with the same lock, while the others wait. ready reports whether
// everything is prepared: it is called before and after the wait, and once it returns true no process prepares.
// If prepare fails, or its process dies, the next one takes over. ctx ends the wait.
//
// The file is created, locked with flock(2), and stays; it names the process that has locked it last. The kernel unlocks it when that
// process ends, for whatever reason. On NFS, Linux makes it a lock that holds for all nodes. If it holds only within a node (NFS
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

// fileLock is the lock that processes which prepare the same data share: a file to lock.
type fileLock struct {
	path string
	open func(flags int) (*os.File, error)
	log  *slog.Logger // nil: silent
}

// take returns the file, which is locked until it is closed. It does not wait in the kernel, because
// ctx could not end that.
func (l fileLock) take(ctx context.Context) (*os.File, error) {
	var f *os.File
	nobody := func() string { return "a file server's client, or another process, has a lease on it" }
	err := l.untilUnlocked(ctx, nobody, func() (err error) {
		// Open it for writing: NFS requires that for an exclusive lock.
		f, err = l.open(os.O_RDWR | os.O_CREATE | unix.O_NONBLOCK | unix.O_NOFOLLOW)
		return err
	})
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = vfs.CheckOwner(l.path, info) // another user could hold it forever
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

// untilUnlocked calls try until no other process holds the lock of the file, or a lease on it. Samba and the kernel's NFS server
// take leases for their clients; the first open fails and asks for the lease back (fcntl(2), F_SETLEASE).
func (l fileLock) untilUnlocked(ctx context.Context, holder func() string, try func() error) error {
	began, named := time.Now(), ""
	for tries := (backoff.Backoff{First: firstLockRetry, Most: lastLockRetry}); ; {
		err := try()
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		// Warn once for each holder: a process that logged again and again would not be found to hang.
		if waited := time.Since(began); l.log != nil && waited >= warnAfter {
			if now := holder(); now != named {
				l.log.Warn("waiting for another process to prepare the data", "seconds", int(waited.Seconds()),
					"lock", l.path, "holder", now)
				named = now
			}
		}
		if err := tries.Wait(ctx); err != nil {
			return fmt.Errorf("%w, while another process holds the lock of %s: %s", err, l.path, holder())
		}
	}
}

// maxSignature bounds what is read of a lock file.
const maxSignature = 128

var signature = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^process [1-9][0-9]{0,9} of [0-9A-Za-z._-]{1,64}$`) })

// sign writes the name of this process into the file that it has locked, unless the file has other contents. If that fails, the
// others do not learn who holds the lock.
func sign(f *os.File) {
	host, err := os.Hostname()
	info, ierr := f.Stat()
	if err != nil || ierr != nil || info.Size() > 0 && holderOf(f) == unsigned || f.Truncate(0) != nil {
		return
	}
	_, _ = f.WriteAt(fmt.Appendf(nil, "process %d of %s", os.Getpid(), host), 0)
}

const unsigned = "an unknown process"

// holderOf returns which process has locked a file, according to the file's contents.
func holderOf(f *os.File) string {
	text := make([]byte, maxSignature)
	n, _ := f.ReadAt(text, 0) // what cannot be read is not a signature
	if !signature().Match(text[:n]) {
		return unsigned
	}
	return string(text[:n])
}
