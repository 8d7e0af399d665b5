package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"time"
)

// What a message says is there may be invisible to an NFS client for as long as it believes a
// cached lookup: a minute at most with the usual mount options (acdirmax), seconds as a rule.
const (
	firstWait = 20 * time.Millisecond
	lastWait  = 2 * time.Second
	tries     = 12 // 12 s together
)

// retry runs f again, a bounded number of times, while it answers what a stale view of a network
// file system gives.
func (d *Dir) retry(ctx context.Context, f func() error) error {
	wait := firstWait
	for try := 1; ; try++ {
		err := f()
		if try == tries || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESTALE) {
			return err
		}
		if stopped := d.sleep(ctx, wait); stopped != nil {
			return errors.Join(err, stopped)
		}
		wait = min(2*wait, lastWait)
	}
}

// isStale says whether an error is that of an old view of a network file system.
func isStale(err error) bool { return errors.Is(err, ErrStale) || errors.Is(err, syscall.ESTALE) }

// again runs f once more where a file was replaced under its hands.
func again(f func() error) error {
	err := f()
	if errors.Is(err, syscall.ESTALE) {
		err = f()
	}
	return err
}
