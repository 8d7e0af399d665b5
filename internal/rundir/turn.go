package rundir

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/pause"
)

const (
	turnLimit = 3 * time.Second // many times what a line takes; only who stands still has the lock for longer
	turnPause = 10 * time.Millisecond
)

// takeTurn waits until nobody else writes to f, and keeps others waiting until it is closed. On NFS that holds between machines, and brings
// the file up to date (flock(2)). Where the file system has no locks, or another process does not let go, f is written to without: a line that
// may be lost is better than none.
func takeTurn(f *os.File) {
	limited, cancel := context.WithTimeout(context.Background(), turnLimit)
	defer cancel()
	for {
		err := lock(f)
		if err != unix.EWOULDBLOCK && err != unix.EINTR || pause.For(limited, turnPause) != nil {
			return
		}
	}
}

// lock takes f for who has opened it so.
func lock(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
