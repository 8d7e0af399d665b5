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

// A file that a message has announced may be invisible to an NFS client for as long as it trusts a
// cached lookup: a minute at most with the usual mount options (acdirmax), and seconds as a rule.
const (
	firstWait = 20 * time.Millisecond
	lastWait  = 2 * time.Second
	tries     = 16 // 14 s together, on average
)

// retry runs f again, a bounded number of times, while it returns the errors that a stale view of a network
// file system causes.
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

// isStale reports whether an error comes from an old view of a network file system.
func isStale(err error) bool { return errors.Is(err, ErrStale) || errors.Is(err, syscall.ESTALE) }

// retryStale runs f once more if a file was replaced while f used it.
func retryStale(f func() error) error {
	err := f()
	if errors.Is(err, syscall.ESTALE) {
		err = f()
	}
	return err
}

// list returns the names in a folder.
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

// absent returns nil if a file that a lookup did not find does not exist: its folder, listed anew,
// does not have it either, or does not exist. It returns ErrStale if the folder lists the file: then one of
// the two answers of the network file system is old.
func (d *Dir) absent(path string) error {
	files, err := d.list(filepath.Dir(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && slices.Contains(files, filepath.Base(path)):
		return fmt.Errorf("%w: %s is in its folder's list but cannot be found; try again", ErrStale, path)
	}
	return err
}

// missing returns the error for a file that should exist: ErrCorrupt if c still exists, ErrNone if it does not, and ErrStale if the folder
// lists the file, so that this client's view is wrong.
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
