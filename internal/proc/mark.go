package proc

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A mark is the second place of a cookie, for processes that clear or overwrite their environment: the soft limit of file locks
// (RLIMIT_LOCKS), which no kernel since Linux 2.4.25 heeds (getrlimit(2)). Children have it from their parent; execve(2), setsid(2) and a
// parent's end change nothing, and who may not read a process's environment may read its limits. Only who sets this very limit is rid
// of it (and where SELinux changes a program's domain it may; see rlimitinh).
type mark uint64

// leastMark is more locks than anybody has, for a program that heeds the limit all the same. All marks are below 1<<63, for those
// that take a limit for a signed number.
const leastMark = 1 << 62

// markOf is the mark of a cookie.
func markOf(cookie string) mark {
	n, _ := strconv.ParseUint(cookie[:16], 16, 64) // it is a cookie, so these are digits
	return mark(leastMark | n&(leastMark-1))
}

// give starts a child that has the mark; where the kernel lets nobody have it, one without. This process bears it until the child is there, as
// a child has its limits from the process that forks it. So one child is started at a time, and one that os/exec starts elsewhere at
// that moment has the mark, too: see isHelper.
func (m mark) give(start func() error) error {
	if drop, err := m.bear(); err == nil {
		defer drop()
	}
	return start()
}

// try tells why nobody can have the mark, or why it could not be found.
func (m mark) try() error {
	drop, err := m.bear()
	if err == nil {
		defer drop()
		if readMark(unix.Getpid()) != m {
			err = errors.New("the kernel does not tell it again")
		}
	}
	if err != nil {
		return fmt.Errorf("mark processes that may clear their environment, by their limit of file locks: %w", err)
	}
	return nil
}

// bear gives this process the mark until it drops it.
func (m mark) bear() (drop func(), err error) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_LOCKS, &own); err != nil {
		return nil, err
	}
	if err := unix.Setrlimit(unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: uint64(m), Max: own.Max}); err != nil {
		return nil, err
	}
	return func() { _ = unix.Setrlimit(unix.RLIMIT_LOCKS, &own) }, nil // it was so before
}

// readMark reads the mark of a process; 0: it has none, or cannot be asked.
func readMark(pid int) mark {
	var limit unix.Rlimit
	switch err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit); {
	case err == nil:
		return asMark(limit.Cur)
	case errors.Is(err, unix.ESRCH):
		return 0
	}
	// of another user or group than ours, as ssh-agent's: /proc tells it to everybody
	text, _ := readSome(fmt.Sprintf("/proc/%d/limits", pid), 4096) // of one that is gone: nothing
	return parseMark(text)
}

// parseMark finds the mark in the text of /proc/PID/limits (proc(5)).
func parseMark(limits []byte) mark {
	for line := range bytes.Lines(limits) {
		rest, ok := bytes.CutPrefix(line, []byte("Max file locks "))
		if fields := bytes.Fields(rest); ok && len(fields) > 0 {
			n, _ := strconv.ParseUint(string(fields[0]), 10, 64) // "unlimited" is no mark
			return asMark(n)
		}
	}
	return 0
}

// asMark is the mark that a limit is; 0: it is none.
func asMark(limit uint64) mark {
	if limit < leastMark || limit >= 2*leastMark {
		return 0
	}
	return mark(limit)
}

// cookieIn finds the cookie among variables for a child; the last one counts, as in os/exec.
func cookieIn(env []string) (cookie string, ok bool) {
	for _, entry := range slices.Backward(env) {
		if cookie, ok = strings.CutPrefix(entry, CookieVariable+"="); ok {
			return cookie, checkCookie(cookie) == nil
		}
	}
	return "", false
}
