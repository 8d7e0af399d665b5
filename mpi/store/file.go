package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"ddpbatch/internal/backoff"
)

// FileConfig configures how a store in a file ends.
type FileConfig struct {
	// Workers is how many processes open the file in all. The last of them to close it removes the file. 0: the file stays.
	Workers int
}

// File is a Store in a file that several processes open, on one machine or on a file system that they share and that supports
// flock(2). Its format is that of PyTorch 1.13's FileStore, so that PyTorch's processes can share the file.
//
// A process polls for keys that it waits for, at least every 25 ms. A process that ends while it writes leaves a partial record,
// which the next writer removes.
type File struct {
	path      string
	workers   int
	busy      chan struct{} // holds a token while a call reads or writes the file
	view      *memory       // the contents that were read so far
	log       logState      // how far the file was read; guarded by busy
	closeOnce sync.Once
}

// OpenFile opens the store in the file at path. The first call that writes creates the file, with mode 0600. Anyone who may write
// the file is trusted with the contents of the store, but not more: a file that is not a store's is an error (ErrMalformedFile),
// and so is a key or a value from PyTorch that exceeds this store's limits (ErrTooLarge).
//
// A file that an earlier run left, for example because a process was killed, is read like any other: its keys exist, and the
// processes that closed it count as Workers of this run. Give each run a new path, or remove the file before.
func OpenFile(path string, cfg FileConfig) (*File, error) {
	switch info, err := os.Stat(path); {
	case path == "":
		return nil, errors.New("open a store's file: the path is empty")
	case cfg.Workers < 0:
		return nil, fmt.Errorf("open the store's file %s: the number of workers must not be negative, got %d", path, cfg.Workers)
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("open the store's file: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("open the store's file: %w", irregularError(path, info))
	}
	return &File{path: path, workers: cfg.Workers, busy: make(chan struct{}, 1), view: newMemory()}, nil
}

// irregularError is the error for a file that is not regular, which could make a reader wait forever.
func irregularError(path string, info fs.FileInfo) error {
	return fmt.Errorf("%s is not a regular file but %v", path, info.Mode().Type())
}

func (f *File) Set(ctx context.Context, key string, value []byte) error {
	return f.write(ctx, "set "+quote(key), func() ([]Item, error) { return []Item{{key, value}}, nil })
}

func (f *File) Append(ctx context.Context, key string, value []byte) error {
	return f.write(ctx, "append to "+quote(key), func() ([]Item, error) {
		old, err := f.view.peek(key)
		return []Item{{key, slices.Concat(old, value)}}, err
	})
}

func (f *File) Add(ctx context.Context, key string, delta int64) (sum int64, err error) {
	err = f.write(ctx, "add to "+quote(key), func() ([]Item, error) {
		old, err := f.view.peek(key)
		if err == nil {
			sum, err = plus(old, delta)
		}
		return []Item{{key, decimal(sum)}}, err
	})
	if err != nil {
		return 0, err
	}
	return sum, nil
}

func (f *File) CompareSet(ctx context.Context, key string, expected, desired []byte) (there []byte, err error) {
	err = f.write(ctx, "compare and set "+quote(key), func() ([]Item, error) {
		old, err := f.view.peek(key)
		if err != nil || !bytes.Equal(old, expected) {
			there = bytes.Clone(old)
			return nil, err
		}
		there = append([]byte{}, desired...)
		return []Item{{key, desired}}, nil
	})
	if err != nil {
		return nil, err
	}
	return there, nil
}

func (f *File) MultiSet(ctx context.Context, items ...Item) error {
	return f.write(ctx, "set several keys", func() ([]Item, error) { return items, checkItems(items) })
}

func (f *File) Delete(ctx context.Context, key string) (was bool, err error) {
	err = f.change(ctx, "delete "+quote(key), func() ([]byte, error) {
		old, err := f.view.peek(key)
		if was = old != nil; err != nil || !was {
			return nil, err
		}
		return appendRecord(nil, deleteMark+key, nil), nil
	})
	if err != nil {
		return false, err
	}
	return was, nil
}

func (f *File) Get(ctx context.Context, key string) (value []byte, err error) {
	err = f.wait(ctx, "get "+quote(key), func(ctx context.Context) (err error) {
		value, err = f.view.Get(ctx, key)
		return err
	})
	return value, err
}

func (f *File) MultiGet(ctx context.Context, keys ...string) (values [][]byte, err error) {
	err = f.wait(ctx, "get several keys", func(ctx context.Context) (err error) {
		values, err = f.view.MultiGet(ctx, keys...)
		return err
	})
	return values, err
}

func (f *File) Wait(ctx context.Context, keys ...string) error {
	return f.wait(ctx, "wait", func(ctx context.Context) error { return f.view.Wait(ctx, keys...) })
}

func (f *File) Check(ctx context.Context, keys ...string) (bool, error) {
	if err := f.read(ctx); err != nil {
		return false, fmt.Errorf("check: %w", err)
	}
	return f.view.Check(ctx, keys...)
}

func (f *File) NumKeys(ctx context.Context, prefix string) (int, error) {
	if err := f.read(ctx); err != nil {
		return 0, fmt.Errorf("count the keys: %w", err)
	}
	return f.view.NumKeys(ctx, prefix)
}

func (f *File) List(ctx context.Context, prefix string) ([]string, error) {
	if err := f.read(ctx); err != nil {
		return nil, fmt.Errorf("list the keys: %w", err)
	}
	return f.view.List(ctx, prefix)
}

// write sets the items that items computes from the view. The view is up to date then, and no other process can change the file
// meanwhile.
func (f *File) write(ctx context.Context, what string, items func() ([]Item, error)) error {
	return f.change(ctx, what, func() (records []byte, err error) {
		list, err := items()
		if err == nil {
			err = f.view.fitsAll(list)
		}
		if err != nil {
			return nil, err
		}
		last := make(map[string]int, len(list)) // of two items with the same key, only the later one is written
		for i, item := range list {
			last[item.Key] = i
		}
		for i, item := range list {
			if last[item.Key] == i {
				records = appendRecord(records, string(keyMark)+item.Key, item.Value)
			}
		}
		return records, nil
	})
}

// change appends the records that records computes from the view; see write.
func (f *File) change(ctx context.Context, what string, records func() ([]byte, error)) error {
	err := f.acquire(ctx)
	if err == nil {
		err = f.changeLocked(ctx, records)
		f.release()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// changeLocked is change for a caller that has acquired the file.
func (f *File) changeLocked(ctx context.Context, records func() ([]byte, error)) error {
	file, err := f.lock(ctx, os.O_RDWR|os.O_CREATE, exclusive)
	if err != nil {
		return err
	}
	defer f.unlock(file)
	if err := f.refresh(ctx, file); err != nil {
		return err
	}
	text, err := records()
	if err != nil || len(text) == 0 {
		return err
	}
	if err := f.appendRecords(file, text); err != nil {
		return err
	}
	return f.refresh(context.WithoutCancel(ctx), file) // the change is written, so it counts
}

// wait calls until, which waits for a change of the view, and polls the file meanwhile.
func (f *File) wait(ctx context.Context, what string, until func(context.Context) error) error {
	if err := f.read(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	waiting, stop := context.WithCancelCause(ctx)
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		f.poll(waiting, stop)
	}()
	err := until(waiting)
	stop(nil)
	<-polled
	if cause := context.Cause(waiting); err != nil && ctx.Err() == nil && cause != context.Canceled {
		return fmt.Errorf("%s: %w", what, cause)
	}
	return err
}

const (
	firstPoll = time.Millisecond      // the first pause before a file is read again for keys that are waited for
	lastPoll  = 25 * time.Millisecond // pauses grow up to this
)

// poll reads the file again and again until ctx ends. If the file cannot be read, it ends ctx by stop.
func (f *File) poll(ctx context.Context, stop context.CancelCauseFunc) {
	for wait := (backoff.Backoff{First: firstPoll, Most: lastPoll}); wait.Wait(ctx) == nil; {
		if err := f.read(ctx); err != nil && ctx.Err() == nil {
			stop(err)
			return
		}
	}
}

// read brings the view up to date. If the file does not exist yet, the store is empty.
func (f *File) read(ctx context.Context) error {
	if err := f.acquire(ctx); err != nil {
		return err
	}
	defer f.release()
	file, err := f.lock(ctx, os.O_RDONLY, shared)
	if errors.Is(err, fs.ErrNotExist) {
		f.reset(nil)
		return nil
	}
	if err != nil {
		return err
	}
	defer f.unlock(file)
	return f.refresh(ctx, file)
}

// acquire reserves the file for one call of this process, until release.
func (f *File) acquire(ctx context.Context) error {
	if err := f.view.closed(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case f.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// release lets the next call have the file. After Close, it closes the file, as no further call needs it.
func (f *File) release() {
	if file := f.log.file; file != nil && f.view.closed() != nil {
		f.log = logState{}
		file.Close()
	}
	<-f.busy
}

// closeTimeout bounds how long Close waits for the lock of another process.
const closeTimeout = 5 * time.Second

// Close ends this process's use of the store, and records that in the file. The last of FileConfig.Workers removes the file.
// Waiting calls return ErrClosed.
func (f *File) Close() (err error) {
	f.closeOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err = f.countClosed(ctx)
		f.view.Close()
		select {
		case f.busy <- struct{}{}:
			f.release()
		case <-ctx.Done(): // the call that still has the file will close it
		}
	})
	if err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}

// countClosed counts this process among those that have closed the file.
func (f *File) countClosed(ctx context.Context) error {
	if err := f.acquire(ctx); err != nil {
		return err
	}
	defer f.release()
	file, err := f.lock(ctx, os.O_RDWR, exclusive)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no process has written, or the file was removed
	}
	if err != nil {
		return err
	}
	defer f.unlock(file)
	if err := f.refresh(ctx, file); err != nil {
		return err
	}
	closed := f.log.closed + 1
	if err := f.appendRecords(file, appendRecord(nil, closedKey, decimal(closed))); err != nil {
		return err
	}
	if closed == int64(f.workers) {
		return os.Remove(f.path)
	}
	return nil
}
