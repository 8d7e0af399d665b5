package proc

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Relative is a process of a worker: a child, a member of its group, a descendant of one of those, or a process with the worker's
// variables.
type Relative struct {
	PID, Parent int
	Name        string // the name of its command, as in ps(1)
	State       byte   // as in Usage
	seen        stat
}

// Relatives returns the child that leads a group, and all processes that belong to it: the child first, the others sorted by process ID.
// Processes that have ended are left out.
func Relatives(leader int) ([]Relative, error) {
	all, err := stats()
	if err != nil {
		return nil, fmt.Errorf("read the processes: %w", err)
	}
	of := leaderOf([]int{leader}, all)
	var found []Relative
	for _, s := range all {
		if _, ok := of(s); ok && !s.zombie() {
			found = append(found, relative(s))
		}
	}
	slices.SortStableFunc(found, func(a, b Relative) int {
		switch {
		case a.PID == leader:
			return -1
		case b.PID == leader:
			return 1
		}
		return a.PID - b.PID
	})
	return found, nil
}

func relative(s stat) Relative {
	return Relative{PID: s.pid, Parent: s.parent, Name: s.name, State: s.state, seen: s}
}

// WithVariables returns the live processes whose initial environment has all of the given NAME=value pairs, oldest first. Processes of
// other users do not show their environment.
func WithVariables(pairs ...string) ([]Relative, error) {
	all, err := stats()
	if err != nil {
		return nil, fmt.Errorf("read the processes: %w", err)
	}
	var found []Relative
	for _, s := range all {
		if !s.zombie() && hasVariables(s.pid, pairs) {
			found = append(found, relative(s))
		}
	}
	slices.SortStableFunc(found, func(a, b Relative) int { // they are sorted by ID
		return cmp.Compare(a.seen.start, b.seen.start)
	})
	return found, nil
}

// Environ returns the environment that a process was started with, as NAME=value entries, or what the process has written over it since.
func Environ(pid int) ([]string, error) {
	text, err := readSome(fmt.Sprintf("/proc/%d/environ", pid), maxEnviron)
	if err != nil {
		return nil, fmt.Errorf("read the environment of process %d: %w", pid, err)
	}
	var environ []string
	for entry := range bytes.SplitSeq(text, []byte{0}) {
		if bytes.IndexByte(entry, '=') > 0 {
			environ = append(environ, string(entry))
		}
	}
	return environ, nil
}

func hasVariables(pid int, pairs []string) bool {
	environ, err := readSome(fmt.Sprintf("/proc/%d/environ", pid), maxEnviron)
	if err != nil {
		return false
	}
	environ = append([]byte{0}, environ...)
	return !slices.ContainsFunc(pairs, func(pair string) bool {
		return !bytes.Contains(environ, []byte("\x00"+pair+"\x00"))
	})
}

// Signal sends sig to the process, and never to a later one with the same ID. It is not an error if the process has ended.
func (r Relative) Signal(sig unix.Signal) error {
	h, ok := openHandle(r.seen, func(stat) bool { return true })
	if !ok {
		return nil
	}
	defer h.close()
	return h.signal(sig)
}

// SignalMain sends sig to the process's first thread, so that no other thread takes it: a handler then runs before anything else that this
// thread does.
func (r Relative) SignalMain(sig unix.Signal) error {
	if r.Gone() {
		return nil
	}
	if err := unix.Tgkill(r.PID, r.PID, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %v to the first thread of process %d (%s): %w", sig, r.PID, r.Name, err)
	}
	return nil
}

// Gone reports whether the process has ended.
func (r Relative) Gone() bool { return (&handle{stat: r.seen}).gone() }

// leaderOf returns a function that maps a process to the index of the leader it belongs to.
func leaderOf(leaders []int, all []stat) func(stat) (int, bool) {
	index, parents := map[int]int{}, map[int]int{}
	for i, pid := range leaders {
		index[pid] = i
	}
	owner := maps.Clone(index) // index of the leader of each process; -1: none
	for _, s := range all {
		parents[s.pid] = s.parent
		_, leads := index[s.pid]
		if i, ok := index[s.group]; ok && !leads {
			owner[s.pid] = i
		}
	}
	var of func(pid int) int
	of = func(pid int) int {
		if i, ok := owner[pid]; ok {
			return i
		}
		owner[pid] = -1 // ends a cycle of parents, as processes read at different times may show
		if parent := parents[pid]; parent > 0 {
			owner[pid] = of(parent)
		}
		return owner[pid]
	}
	return func(s stat) (int, bool) { i := of(s.pid); return i, i >= 0 }
}

// Usage describes the state of a child, and the use of resources by it and the processes below it.
type Usage struct {
	// CPU is the processor time of the child, of the members of its group, and of all their descendants, including those that have ended
	// and were waited for. It falls when one of them ends and its parent does not wait for it.
	CPU   time.Duration
	State byte // of the child, as in ps(1): R runs, S sleeps, D waits for a disk or a file server, T was stopped, t is being traced
}

// Stopped reports whether the child was stopped (by SIGSTOP, SIGTSTP or a debugger), so that it cannot make progress.
func (u Usage) Stopped() bool { return u.State == 'T' || u.State == 't' }

// Usages reads all processes once, and returns the usage of the children with the given IDs, which lead their groups. It takes about 15
// microseconds per process of the machine.
func Usages(leaders []int) ([]Usage, error) {
	all, err := stats()
	if err != nil {
		return nil, fmt.Errorf("read the processes: %w", err)
	}
	return usagesOf(leaders, all), nil
}

func usagesOf(leaders []int, all []stat) []Usage {
	usages := make([]Usage, len(leaders))
	of := leaderOf(leaders, all)
	for _, s := range all {
		i, ok := of(s)
		if !ok {
			continue
		}
		u := &usages[i]
		u.CPU += s.cpu
		if s.pid == leaders[i] {
			u.State = s.state
		}
	}
	return usages
}

const maxExecutable = 64 << 20 // bytes of an executable that are read to find out what it is

var errTooMuch = errors.New("too much of the file would have to be read")

// IsGo reports whether a process runs a program written in Go, according to its executable (debug/buildinfo). It returns false for an
// executable in a format that it cannot read.
func IsGo(pid int) (bool, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false, fmt.Errorf("read the executable of process %d: %w", pid, err)
	}
	defer f.Close()
	_, err = buildinfo.Read(&boundedReader{f, maxExecutable})
	if errors.Is(err, errTooMuch) {
		return false, fmt.Errorf("read the executable of process %d: %w", pid, err)
	}
	return err == nil, nil
}

// boundedReader reads at most left bytes in all.
type boundedReader struct {
	r    io.ReaderAt
	left int64
}

func (b *boundedReader) ReadAt(p []byte, at int64) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errTooMuch
	}
	return b.r.ReadAt(p, at)
}
