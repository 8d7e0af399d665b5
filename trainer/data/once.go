package data

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/vfs"
)

const (
	firstLockRetry = time.Millisecond // pause before a lock is tried for again, doubled each time
	lastLockRetry  = 100 * time.Millisecond
)

// Once calls prepare in one of the processes that call it with the same path, while the others wait. What is there to
// be prepared is for ready to tell: it is asked before and after the wait, and once it says yes nobody prepares.
// When prepare fails, or its process dies, the next one takes over. ctx ends the wait.
//
// The file at path is made, locked with flock(2), and stays, empty. The kernel unlocks it when its holder ends,
// however that happens. On NFS, Linux makes it a lock that holds for all nodes. Where it holds within a node only (NFS
// mounted with local_lock, Lustre with localflock), one process of each node prepares at a time, which must do no harm.
// File systems without locks give an error, and so does a file that another user owns or may write to.
func Once(ctx context.Context, path string, ready func() (bool, error), prepare func() error) error {
	if done, err := ready(); done || err != nil {
		return err
	}
	lock, err := lockFile(ctx, path)
	if err != nil {
		return err
	}
	defer lock.Close()
	if done, err := ready(); done || err != nil {
		return err
	}
	return prepare()
}

// lockFile returns the file, locked until it is closed. It does not wait in the kernel, where
// ctx could not end it.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	var f *os.File
	err := untilFree(ctx, path, func() (err error) {
		// For writing, as NFS wants for an exclusive lock; nothing is written.
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
		return err
	})
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = vfs.CheckOwner(path, info) // another user could hold it for ever
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock: %w", err)
	}
	err = untilFree(ctx, path, func() error {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return fmt.Errorf("lock %s: %w (choose a folder on a file system that has flock, such as a local disk)", path, err)
		}
		return nil
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// untilFree calls try as long as another process holds the lock of the file at path or, as Samba and the kernel's NFS server
// do for their clients, a lease on it, which makes a first open fail and is asked back by it (fcntl(2), F_SETLEASE).
func untilFree(ctx context.Context, path string, try func() error) error {
	for pause := firstLockRetry; ; pause = min(2*pause, lastLockRetry) {
		err := try()
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return fmt.Errorf("%w, and another process holds the lock of %s", ctx.Err(), path)
		}
	}
}
