package runview

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ddpbatch/internal/lines"
)

// errAllShown: all attempts that are asked for are over, though the job may not be.
var errAllShown = errors.New("the attempt is over")

// following shows what ranks write as they write it.
type following struct {
	rankLogs
	attempt int             // whose files are read
	open    []followed      // in the order in which they were found
	known   map[string]bool // paths of these
	listed  time.Time
}

type followed struct {
	tail  *tailer
	label *lines.Writer // nil: bytes as they come
}

// follow goes from attempt to attempt until the job has ended or the last attempt that is asked for is over.
func (l rankLogs) follow(ctx context.Context, id string) error {
	f, err := l.following()
	if err != nil {
		return err
	}
	err = f.v.untilEnd(ctx, f.run, id, f.more)
	if ctx.Err() == nil && !errors.Is(err, errAllShown) {
		if last := f.rest(); !errors.Is(last, errAllShown) {
			err = errors.Join(err, last)
		}
	}
	if errors.Is(err, errAllShown) {
		err = nil
	}
	return errors.Join(err, f.finish())
}

// following begins with the first attempt that is asked for.
func (l rankLogs) following() (*following, error) {
	l, err := l.resolved()
	return &following{rankLogs: l, attempt: l.first, known: map[string]bool{}}, err
}

// rest shows what came into being just before the job's end.
func (f *following) rest() error {
	f.listed = time.Time{}
	return f.more()
}

// more shows what is new. Folders are read seldom: they lie on shared file systems, and may hold thousands of files.
func (f *following) more() error {
	if f.v.Now().Sub(f.listed) < statePoll {
		return f.copy()
	}
	f.listed = f.v.Now()
	newest, err := f.run.NewestAttempt()
	if err != nil {
		return err
	}
	for {
		if err := errors.Join(f.look(), f.copy()); err != nil {
			return err
		}
		// the next attempt begins when the ranks of this one are gone
		switch {
		case newest <= f.attempt:
			return nil
		case f.attempt == f.last:
			return errAllShown
		}
		if err := f.finish(); err != nil {
			return err
		}
		f.attempt++
	}
}

// look opens files that have come into being.
func (f *following) look() error {
	logs, err := f.list(f.attempt)
	if err != nil && !errors.Is(err, errNoLogs) {
		return err
	}
	for _, log := range logs {
		if f.known[log.Path] {
			continue
		}
		f.known[log.Path] = true
		file := followed{tail: &tailer{path: log.Path, to: f.v.Out}}
		if f.labelled() {
			file.label = f.label(log)
			file.tail.to = file.label
		}
		if len(f.open) == 0 {
			fmt.Fprintf(f.v.Err, "==> %sattempt %d <==\n", f.ofElement(", "), f.attempt)
		}
		f.open = append(f.open, file)
	}
	return nil
}

// copy shows what was added to the open files.
func (f *following) copy() error {
	for _, file := range f.open {
		if err := file.tail.copy(); err != nil {
			return err
		}
	}
	return nil
}

// finish shows lines that have no end, and closes the files.
func (f *following) finish() error {
	var err error
	for _, file := range f.open {
		file.tail.close()
		if file.label != nil {
			err = errors.Join(err, file.label.Finish())
		}
	}
	f.open = nil
	return err
}
