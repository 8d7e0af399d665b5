package runview

import (
	"context"
	"errors"
	"fmt"

	"ddpbatch/internal/lines"
)

// errAllShown means that all requested attempts have ended, though the job may not have.
var errAllShown = errors.New("the attempt is over")

// following shows what ranks write as they write it.
type following struct {
	rankLogs
	attempt int // the attempt whose files are read
	openLogs
}

// follow shows attempt after attempt until the job has ended or the last requested attempt is over.
func (l rankLogs) follow(ctx context.Context, id string) error {
	f, err := l.following()
	if err != nil {
		return err
	}
	return errors.Join(f.untilShown(ctx, id, f.more, f.rest), f.finish())
}

// untilShown calls more until the job has ended, and then rest. It stops when everything requested was shown.
func (l rankLogs) untilShown(ctx context.Context, id string, more, rest func() error) error {
	err := l.v.untilEnd(ctx, l.run, id, more)
	if ctx.Err() == nil && !errors.Is(err, errAllShown) {
		if last := rest(); !errors.Is(last, errAllShown) {
			err = errors.Join(err, last)
		}
	}
	if errors.Is(err, errAllShown) {
		return nil
	}
	return err
}

// following begins with the first requested attempt.
func (l rankLogs) following() (*following, error) {
	l, err := l.resolved()
	return &following{rankLogs: l, attempt: l.first}, err
}

// rest shows what was written just before the job's end.
func (f *following) rest() error {
	f.pacer = pacer{}
	return f.more()
}

// more shows what is new.
func (f *following) more() error {
	if !f.due(f.v.Now()) {
		return f.copy()
	}
	newest, err := f.run.NewestAttempt()
	if err != nil {
		return err
	}
	for {
		if err := errors.Join(f.look(), f.copy()); err != nil {
			return err
		}
		// the next attempt begins after the ranks of this one have ended
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

// look opens new files.
func (f *following) look() error {
	logs, err := f.list(f.attempt)
	if err != nil && !errors.Is(err, errNoLogs) {
		return err
	}
	for _, log := range logs {
		var label *lines.Writer
		if f.labelled() {
			label = f.label(log)
		}
		if first := len(f.open) == 0; f.add(log.Path, f.v.Out, label) && first {
			fmt.Fprintf(f.v.Err, "==> %sattempt %d <==\n", f.ofElement(", "), f.attempt)
		}
	}
	return nil
}
