package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// FileConfig says how a store in a file ends.
type FileConfig struct {
	// Workers is how many processes open the file in all. The last of them to Close removes it. 0: it stays.
	Workers int
}

// File is a Store in a file that several processes open, on one machine or on a file system
// that they share and that has flock(2). Its format is that of PyTorch 1.13's FileStore, with which it shares a file.
//
// What a process waits for it looks for again and again, at the longest every 25 ms. A process that
// ends while it writes leaves half a record, which the next to write takes away.
type File struct {
	path    string
	workers int
	turn    chan struct{} // holds a token while a call reads or writes the file
	view    *memory       // what was read so far
	log     logState      // how far; used with turn
	ending  sync.Once
}

// OpenFile opens the store in the file at path, which the first call that writes makes, with mode 0600. Whoever may
// write the file is trusted with what is in the store, and no more: what is no store's file is an error (ErrMalformedFile),
// and so is a key or a value that PyTorch wrote and that is over this store's limits (ErrTooLarge).
//
// A file that an earlier run left, as one does of which a process was killed, is read like any other: its keys are there,
// and the processes that closed it count as Workers of this run. Give each run a new path, or remove the file before it.
func OpenFile(path string, cfg FileConfig) (*File, error) {
	switch info, err := os.Stat(path); {
	case path == "":
		return nil, errors.New("open a store's file: no path is given")
	case cfg.Workers < 0:
		return nil, fmt.Errorf("open the store's file %s: %d workers cannot be", path, cfg.Workers)
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("open the store's file: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("open the store's file: %w", irregular(path, info))
	}
	return &File{path: path, workers: cfg.Workers, turn: make(chan struct{}, 1), view: newMemory()}, nil
}

// irregular refuses what could make a reader wait for ever.
func irregular(path string, info fs.FileInfo) error {
	return fmt.Errorf("%s is no regular file but %v", path, info.Mode().Type())
}

// closeTime bounds how long Close waits for the lock of another process.
const closeTime = 5 * time.Second

// Close ends this process's use of the store, and tells so in the file; the last of FileConfig.Workers
// removes it. Whoever waits gets ErrClosed.
func (f *File) Close() (err error) {
	f.ending.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		err = f.finish(ctx)
		f.view.Close()
		select {
		case f.turn <- struct{}{}:
			f.end()
		case <-ctx.Done(): // the call that has the file still will end it
		}
	})
	if err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}

// finish counts this process among those that have closed the file.
func (f *File) finish(ctx context.Context) error {
	if err := f.begin(ctx); err != nil {
		return err
	}
	defer f.end()
	file, err := f.lock(ctx, os.O_RDWR, exclusive)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nobody wrote, or somebody tidied up
	}
	if err != nil {
		return err
	}
	defer f.unlock(file)
	if err := f.refresh(ctx, file); err != nil {
		return err
	}
	closed := f.log.closed + 1
	if err := f.append(file, appendRecord(nil, closedKey, decimal(closed))); err != nil {
		return err
	}
	if closed == int64(f.workers) {
		return os.Remove(f.path)
	}
	return nil
}
