package proc

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"ddpbatch/internal/pause"
)

// CookieVariable is the environment variable that distinguishes the processes of a run from all others, for [SweepOrphans].
const CookieVariable = "DDPBATCH_COOKIE"

const (
	cookieBytes      = 16
	environTimeout   = time.Second // for the kernel to hand out one environment
	maxEnviron       = 64 << 20    // bytes of it that are read
	environChunk     = 64 << 10
	maxThreadsLooked = 64 // of a process whose first thread has ended
	maxCookies       = 16 // entries of one environment; no ordinary program has more than one
)

// NewCookie makes a cookie: 32 hexadecimal digits that nobody can guess.
func NewCookie() string {
	var b [cookieBytes]byte
	_, _ = rand.Read(b[:]) // it never fails; see crypto/rand
	return hex.EncodeToString(b[:])
}

// checkCookie rejects values that other programs might have in their environment too.
func checkCookie(cookie string) error {
	b, err := hex.DecodeString(cookie)
	if err != nil || len(b) != cookieBytes || cookie != strings.ToLower(cookie) {
		return fmt.Errorf("%.64q is not a cookie: a cookie has %d lower-case hexadecimal digits", cookie, 2*cookieBytes)
	}
	return nil
}

// environReader reads the environments of processes. While a process's memory is locked, the kernel makes a reader wait, perhaps forever (a
// page fault on a file server that does not answer, while a thread waits to map memory). So each environment is read in a goroutine, which
// is abandoned in that case until the kernel releases it. An environReader is not safe for concurrent use.
type environReader struct {
	variable string // the variable that holds cookies
	asked    chan stat
	answer   chan environ
	silent   map[int]bool // processes that did not answer, and are not asked again
}

// environ is the result of reading one environment.
type environ struct {
	cookies []string
	empty   bool // the environment was empty, as it is for a moment during execve(2)
	err     error
}

// errLocked means that the kernel did not return the environment of a process in time.
var errLocked = errors.New("its memory is locked")

func newEnvironReader(variable string) *environReader {
	return &environReader{variable: variable, silent: map[int]bool{}}
}

// of returns the cookies in the environment of a process.
func (e *environReader) of(p stat) environ {
	if e.silent[p.pid] {
		return environ{err: errLocked}
	}
	if e.asked == nil {
		e.asked, e.answer = make(chan stat), make(chan environ, 1)
		go func(asked <-chan stat, answer chan<- environ) {
			chunk := make([]byte, environChunk)
			for p := range asked {
				answer <- environOf(p, e.variable, chunk)
			}
		}(e.asked, e.answer)
	}
	e.asked <- p
	if found, came := pause.Await(e.answer, environTimeout); came {
		return found
	}
	e.close()
	e.silent[p.pid] = true
	return environ{err: errLocked}
}

// close ends the reading goroutine.
func (e *environReader) close() {
	if e.asked != nil {
		close(e.asked)
		e.asked = nil
	}
}

// unanswered returns an error if some process did not answer, because such a process may be a target.
func (e *environReader) unanswered() error {
	for pid := range e.silent {
		if s, err := readStat(pid); err != nil || s.zombie() {
			delete(e.silent, pid)
		}
	}
	for pid := range e.silent {
		return fmt.Errorf("the memory of %d processes is locked (process %d, for example): whose they are is unknown", len(e.silent),
			pid)
	}
	return nil
}

// environOf reads the environment that a process was started with, or what the process has written over it since.
func environOf(p stat, variable string, chunk []byte) environ {
	found := readEnviron(fmt.Sprintf("/proc/%d/environ", p.pid), variable, chunk)
	if p.state != 'Z' && !p.exiting || p.threads < 2 {
		return found
	}
	// The first thread has ended or is about to. Depending on the kernel, its environment is empty, missing, or readable only by root. The
	// other threads still have it.
	threads, err := os.Open(fmt.Sprintf("/proc/%d/task", p.pid))
	if err != nil {
		return found
	}
	defer threads.Close()
	names, _ := threads.Readdirnames(maxThreadsLooked)
	for _, name := range names {
		if of := readEnviron(fmt.Sprintf("/proc/%d/task/%s/environ", p.pid, name), variable, chunk); of.err == nil && !of.empty {
			return of
		}
	}
	return found
}

func readEnviron(path, variable string, chunk []byte) environ {
	f, err := os.Open(path)
	if err != nil {
		return environ{err: err}
	}
	defer f.Close()
	return findCookies(f, variable, chunk)
}

// findCookies looks for entries of the variable. Each entry ends with a zero byte. The environment of a hostile process may hold any bytes.
func findCookies(r io.Reader, variable string, chunk []byte) environ {
	prefix := variable + "="
	r = io.LimitReader(r, maxEnviron)
	entry := make([]byte, 0, len(prefix)+2*cookieBytes+1) // the beginning of the entry being read; a longer one is not a cookie
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
