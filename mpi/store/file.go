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
	path      string
	workers   int
	busy      chan struct{} // holds a token while a call reads or writes the file
	view      *memory       // what was read so far
	log       logState      // how far; used by who holds busy
	closeOnce sync.Once
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
		return nil, fmt.Errorf("open the store's file: %w", irregularError(path, info))
	}
	return &File{path: path, workers: cfg.Workers, busy: make(chan struct{}, 1), view: newMemory()}, nil
}

// irregularError refuses what could make a reader wait for ever.
func irregularError(path string, info fs.FileInfo) error {
	return fmt.Errorf("%s is no regular file but %v", path, info.Mode().Type())
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

// write sets what items makes of the view, which is then up to date and of which nobody else can make anything else
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
		last := make(map[string]int, len(list)) // of two items with one key, the later one alone is written
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

// change appends the records that records makes of the view; see write.
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

// changeLocked is change for who has acquired the file.
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
	return f.refresh(context.WithoutCancel(ctx), file) // what is written is done
}

// wait calls until, which waits for something in the view, and looks into the file meanwhile.
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
	firstPoll = time.Millisecond // bounds of the pauses before a file is read again for what is waited for
	lastPoll  = 25 * time.Millisecond
)

// poll reads the file again and again until ctx ends. It ends ctx itself where the file cannot be read.
func (f *File) poll(ctx context.Context, stop context.CancelCauseFunc) {
	for wait := (backoff.Backoff{First: firstPoll, Most: lastPoll}); wait.Wait(ctx) == nil; {
		if err := f.read(ctx); err != nil && ctx.Err() == nil {
			stop(err)
			return
		}
	}
}

// read brings the view up to date. A file that is not there yet is an empty store.
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

// acquire takes the file for one call of this process, until release.
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

// release lets the next call have the file. After Close, none comes that needs the open file.
func (f *File) release() {
	if file := f.log.file; file != nil && f.view.closed() != nil {
		f.log = logState{}
		file.Close()
	}
	<-f.busy
}

// closeTimeout bounds how long Close waits for the lock of another process.
const closeTimeout = 5 * time.Second

// Close ends this process's use of the store, and tells so in the file; the last of FileConfig.Workers
// removes it. Whoever waits gets ErrClosed.
func (f *File) Close() (err error) {
	f.closeOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err = f.countClosed(ctx)
		f.view.Close()
		select {
		case f.busy <- struct{}{}:
			f.release()
		case <-ctx.Done(): // the call that has the file still will end it
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
	if err := f.appendRecords(file, appendRecord(nil, closedKey, decimal(closed))); err != nil {
		return err
	}
	if closed == int64(f.workers) {
		return os.Remove(f.path)
	}
	return nil
}
