package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/backoff"
)

// What a message says is there may be invisible to an NFS client for as long as it believes a
// cached lookup: a minute at most with the usual mount options (acdirmax), seconds as a rule.
const (
	firstWait = 20 * time.Millisecond
	lastWait  = 2 * time.Second
	tries     = 16 // 14 s together, on average
)

// retry runs f again, a bounded number of times, while it answers what a stale view of a network
// file system gives.
func (d *Dir) retry(ctx context.Context, f func() error) error {
	wait := backoff.Backoff{First: firstWait, Most: lastWait}
	for try := 1; ; try++ {
		err := f()
		if try == tries || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESTALE) {
			return err
		}
		if stopped := d.sleep(ctx, wait.Next()); stopped != nil {
			return errors.Join(err, stopped)
		}
	}
}

// isStale says whether an error is that of an old view of a network file system.
func isStale(err error) bool { return errors.Is(err, ErrStale) || errors.Is(err, syscall.ESTALE) }

// retryStale runs f once more where a file was replaced under its hands.
func retryStale(f func() error) error {
	err := f()
	if errors.Is(err, syscall.ESTALE) {
		err = f()
	}
	return err
}

// list is the names in a folder.
func (d *Dir) list(path string) ([]string, error) {
	var names []string
	err := retryStale(func() error {
		entries, err := d.fs.ReadDir(path)
		names = make([]string, len(entries))
		for i, e := range entries {
			names[i] = e.Name()
		}
		return err
	})
	return names, err
}

// absent is nil if a file that a lookup did not find is really not there: its folder, listed anew,
// does not have it either, or is gone. ErrStale where it is listed: one of the two answers of a
// network file system is old.
func (d *Dir) absent(path string) error {
	files, err := d.list(filepath.Dir(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && slices.Contains(files, filepath.Base(path)):
		return fmt.Errorf("%w: %s is in its folder's list, and is said not to be there; try again", ErrStale, path)
	}
	return err
}

// missing is the error for a file that ought to be there: ErrCorrupt if c still is, else ErrNone; ErrStale where the file's folder
// lists it, so that it is this client's view that is wrong.
func (c *Checkpoint) missing(path, what string) error {
	files, err := c.d.list(c.path())
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !slices.Contains(files, manifest.Name):
		return fmt.Errorf("%w: %s has been removed", ErrNone, c.path())
	case err == nil:
		err = c.d.absent(path)
	}
	if err != nil {
		return err
	}
	return &CorruptError{Path: path, Detail: what, missing: true}
}
