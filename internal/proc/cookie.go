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

// CookieVariable is the variable that tells a run's processes from all others, for [SweepOrphans].
const CookieVariable = "DDPBATCH_COOKIE"

const (
	cookieBytes      = 16
	environTimeout   = time.Second // for the kernel to hand out one environment
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
	variable string // whose values are the cookies
	asked    chan stat
	answer   chan environ
	silent   map[int]bool // who did not answer: not asked again
}

// environ is what was found in one environment.
type environ struct {
	cookies []string
	empty   bool // it was empty, as it is for a moment in execve(2)
	err     error
}

// errLocked is a process whose environment the kernel does not hand out in time.
var errLocked = errors.New("its memory is locked")

func newEnvironReader(variable string) *environReader {
	return &environReader{variable: variable, silent: map[int]bool{}}
}

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
		return fmt.Errorf("the memory of %d processes is locked, of process %d for one: it cannot be told whose they are", len(e.silent),
			pid)
	}
	return nil
}

// environOf reads the environment that a process was started with, or what it has written over it since.
func environOf(p stat, variable string, chunk []byte) environ {
	found := readEnviron(fmt.Sprintf("/proc/%d/environ", p.pid), variable, chunk)
	if p.state != 'Z' && !p.exiting || p.threads < 2 {
		return found
	}
	// Its first thread has ended, or is about to. There the environment is empty, or none, or root's: it depends on the kernel. The other
	// threads have it.
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

// findCookies looks for entries of the variable, which each end with a zero byte. The environment of a hostile
// process may be any bytes.
func findCookies(r io.Reader, variable string, chunk []byte) environ {
	prefix := variable + "="
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
