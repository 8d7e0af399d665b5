package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"
)

const (
	firstLook = time.Millisecond // pause before a file is looked at again for what is waited for, doubled each time
	lastLook  = 25 * time.Millisecond
)

// begin takes the file for one call of this process, until end.
func (f *File) begin(ctx context.Context) error {
	if err := f.view.closed(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case f.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end lets the next call have the file. After Close, none comes that needs the pin.
func (f *File) end() {
	if pin := f.log.pin; pin != nil && f.view.closed() != nil {
		f.log = logState{}
		pin.Close()
	}
	<-f.turn
}

// read brings the view up to date. A file that is not there yet is an empty store.
func (f *File) read(ctx context.Context) error {
	if err := f.begin(ctx); err != nil {
		return err
	}
	defer f.end()
	file, err := f.lock(ctx, os.O_RDONLY, shared)
	if errors.Is(err, fs.ErrNotExist) {
		f.forget(nil)
		return nil
	}
	if err != nil {
		return err
	}
	defer f.unlock(file)
	return f.refresh(ctx, file)
}

// write sets what items makes of the view, which is then up to date and of which nobody else can make anything else
// meanwhile.
func (f *File) write(ctx context.Context, what string, items func() ([]Item, error)) error {
	return f.change(ctx, what, func() (records []byte, err error) {
		list, err := items()
		if err == nil {
			err = f.view.takes(list)
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
	err := f.begin(ctx)
	if err == nil {
		err = f.locked(ctx, records)
		f.end()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// locked is change in its turn.
func (f *File) locked(ctx context.Context, records func() ([]byte, error)) error {
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
	if err := f.append(file, text); err != nil {
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
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		f.look(waiting, stop)
	}()
	err := until(waiting)
	stop(nil)
	<-looked
	if cause := context.Cause(waiting); err != nil && ctx.Err() == nil && cause != context.Canceled {
		return fmt.Errorf("%s: %w", what, cause)
	}
	return err
}

// look reads the file again and again until ctx ends. It ends ctx itself where the file cannot be read.
func (f *File) look(ctx context.Context, stop context.CancelCauseFunc) {
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return
		}
		if err := f.read(ctx); err != nil && ctx.Err() == nil {
			stop(err)
			return
		}
	}
}
