package proc

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/pause"
)

// CookieVariable is the variable that tells a run's processes from all others, for [Sweep]. Who is started here with a cookie also has
// its mark.
const CookieVariable = "DDPBATCH_COOKIE"

const (
	cookieBytes      = 16
	environPatience  = time.Second // for the kernel to hand out one environment
	maxEnviron       = 64 << 20    // bytes of it that are looked at
	environChunk     = 64 << 10
	maxThreadsLooked = 64 // of a process whose first thread has ended
	maxCookies       = 16 // entries of one environment; more than one is no program's doing
)

// NewCookie makes a cookie: 32 hexadecimal digits that nobody can guess.
func NewCookie() string {
	var b [cookieBytes]byte
	_, _ = rand.Read(b[:]) // it never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// checkCookie refuses what others might have in their environment, too.
func checkCookie(cookie string) error {
	b, err := hex.DecodeString(cookie)
	if err != nil || len(b) != cookieBytes || cookie != strings.ToLower(cookie) {
		return fmt.Errorf("%.64q is no cookie: it has %d hexadecimal digits, in lower case", cookie, 2*cookieBytes)
	}
	return nil
}

// environReader reads the environments of processes. The kernel makes a reader wait, perhaps for ever, while the process's memory is locked
// (a page fault on a file server that does not answer, with a thread that maps memory behind it): so each is read in a
// goroutine, which is left behind in that case until the kernel lets go of it. Not safe for concurrent use.
type environReader struct {
	asked  chan stat
	answer chan environ
	silent map[int]bool // who did not answer: not asked again
}

// environ is what was found in one environment.
type environ struct {
	cookies []string
	empty   bool // it was empty, as it is for a moment in execve(2)
	err     error
}

// errLocked is a process whose environment the kernel does not hand out in time.
var errLocked = errors.New("its memory is locked")

func newEnvironReader() *environReader { return &environReader{silent: map[int]bool{}} }

// of returns what the environment of a process says.
func (e *environReader) of(p stat) environ {
	if e.silent[p.pid] {
		return environ{err: errLocked}
	}
	if e.asked == nil {
		e.asked, e.answer = make(chan stat), make(chan environ, 1)
		go func(asked <-chan stat, answer chan<- environ) {
			chunk := make([]byte, environChunk)
			for p := range asked {
				answer <- environOf(p, chunk)
			}
		}(e.asked, e.answer)
	}
	e.asked <- p
	if found, came := pause.Await(e.answer, environPatience); came {
		return found
	}
	e.close()
	e.silent[p.pid] = true
	return environ{err: errLocked}
}

// close ends the goroutine.
func (e *environReader) close() {
	if e.asked != nil {
		close(e.asked)
		e.asked = nil
	}
}

// unanswered is an error if some process did not answer: whose it is cannot be told.
func (e *environReader) unanswered() error {
	for pid := range e.silent {
		if s, err := readStat(pid); err != nil || s.zombie() {
			delete(e.silent, pid)
		}
	}
	for pid := range e.silent {
		return fmt.Errorf("the memory of %d processes is locked, of process %d for one: it cannot be told whose they are", len(e.silent), pid)
	}
	return nil
}

// environOf reads the environment that a process was started with, or what it has written over it since.
func environOf(p stat, chunk []byte) environ {
	found := readEnviron(fmt.Sprintf("/proc/%d/environ", p.pid), chunk)
	if p.state != 'Z' || p.threads < 2 {
		return found
	}
	// its first thread has ended: there the environment is empty, or none, or root's (it depends on the kernel), but the others have it
	threads, err := os.Open(fmt.Sprintf("/proc/%d/task", p.pid))
	if err != nil {
		return found
	}
	defer threads.Close()
	names, _ := threads.Readdirnames(maxThreadsLooked)
	for _, name := range names {
		if of := readEnviron(fmt.Sprintf("/proc/%d/task/%s/environ", p.pid, name), chunk); of.err == nil && !of.empty {
			return of
		}
	}
	return found
}

func readEnviron(path string, chunk []byte) environ {
	f, err := os.Open(path)
	if err != nil {
		return environ{err: err}
	}
	defer f.Close()
	return findCookies(f, chunk)
}

// findCookies looks for entries of [CookieVariable], which each end with a zero byte. The environment of a hostile
// process may be any bytes.
func findCookies(r io.Reader, chunk []byte) environ {
	const prefix = CookieVariable + "="
	r = io.LimitReader(r, maxEnviron)
	entry := make([]byte, 0, len(prefix)+2*cookieBytes+1) // the beginning of the one being read; longer ones hold no cookie
	found := environ{empty: true}
	for {
		n, err := r.Read(chunk)
		found.empty = found.empty && n == 0
		for rest := chunk[:n]; len(rest) > 0; {
			part, after, ended := bytes.Cut(rest, []byte{0})
			entry = append(entry, part[:min(len(part), cap(entry)-len(entry))]...)
			if ended {
				if value, ok := strings.CutPrefix(string(entry), prefix); ok && len(found.cookies) < maxCookies {
					found.cookies = append(found.cookies, value)
				}
				entry = entry[:0]
			}
			rest = after
		}
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			found.err = err
			return found
		}
	}
}

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

// start starts a child that has the mark; where the kernel lets nobody have it, one without. This process bears it until the child is
// there, as a child has its limits from the process that forks it. So one child is started at a time, and one that os/exec starts
// elsewhere at that moment has the mark, too: see isHelper.
func (m mark) start(start func() error) error {
	if drop, err := m.set(); err == nil {
		defer drop()
	}
	return start()
}

// check tells why nobody can have the mark, or why it could not be found.
func (m mark) check() error {
	drop, err := m.set()
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

// set gives this process the mark until it drops it.
func (m mark) set() (drop func(), err error) {
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
