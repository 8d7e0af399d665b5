package proc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const goneStep = 10 * time.Millisecond // between looks at a context, and at processes without a pidfd

// handle is one process, and no later one with its number. Its owner closes it.
type handle struct {
	stat
	fd      int   // a pidfd; -1: the kernel has none
	refused error // of a signal
}

// pidStart names a process for as long as the machine runs.
type pidStart struct {
	pid   int
	start uint64
}

func (s stat) pidStart() pidStart { return pidStart{s.pid, s.start} }

func (h *handle) accepted() bool { return h.refused == nil }

// openHandle opens a process that has been looked at. still looks again, now that the handle holds
// it: false leaves it alone.
func openHandle(s stat, still func(stat) bool) (*handle, bool) {
	fd, err := unix.PidfdOpen(s.pid, 0)
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM): // before Linux 5.3; in containers that filter calls they do not know
		fd = -1
	case err != nil:
		return nil, false
	}
	h := &handle{stat: s, fd: fd}
	now, err := readStat(s.pid)
	if err != nil || now.pidStart() != s.pidStart() || !still(now) {
		h.close()
		return nil, false
	}
	h.stat = now
	return h, true
}

func (h *handle) close() {
	if h.fd >= 0 {
		unix.Close(h.fd)
	}
}

// signal sends sig. A process that is gone is no error.
func (h *handle) signal(sig unix.Signal) error {
	var err error
	if h.fd >= 0 {
		err = unix.PidfdSendSignal(h.fd, sig, nil, 0)
	} else if !h.gone() {
		err = unix.Kill(h.pid, sig)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %v to process %d (%s): %w", sig, h.pid, h.name, err)
	}
	return nil
}

// gone tells whether the process has ended, be it that nobody has waited for it yet.
func (h *handle) gone() bool {
	s, err := readStat(h.pid)
	return err != nil || s.start != h.start || s.zombie()
}

// awaitGone waits until all have ended, ctx does, or limit has passed, and returns those that have not.
func awaitGone(ctx context.Context, limit time.Duration, handles []*handle) []*handle {
	left := slices.Clone(handles)
	for end := time.Now().Add(limit); len(left) > 0; {
		left = slices.DeleteFunc(left, (*handle).gone)
		rest := min(goneStep, time.Until(end))
		if len(left) == 0 || rest <= 0 || ctx.Err() != nil {
			break
		}
		var fds []unix.PollFd // of the first one that has not ended: the others are looked at with it
		if left[0].fd >= 0 {
			fds = []unix.PollFd{{Fd: int32(left[0].fd), Events: unix.POLLIN}}
		}
		_, _ = unix.Poll(fds, int(max(1, rest.Milliseconds())))
	}
	return left
}
