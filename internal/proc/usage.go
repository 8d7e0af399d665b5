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

// Relative is a process of a worker: a child, a member of its group, a descendant of one of those, or one with variables of its own.
type Relative struct {
	PID, Parent int
	Name        string // its command's, as in ps(1)
	State       byte   // as in Usage
	seen        stat
}

// Relatives finds a child that leads its group, and all that belongs to it: the child first, the others by process id.
// Those that have ended are left out.
func Relatives(leader int) ([]Relative, error) {
	all, err := stats()
	if err != nil {
		return nil, fmt.Errorf("look at the processes: %w", err)
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

// WithVariables finds the live processes whose environment, as they were started, has all of the given NAME=value pairs: the one that
// began first comes first. Other users' do not show theirs.
func WithVariables(pairs ...string) ([]Relative, error) {
	all, err := stats()
	if err != nil {
		return nil, fmt.Errorf("look at the processes: %w", err)
	}
	var found []Relative
	for _, s := range all {
		if !s.zombie() && hasVariables(s.pid, pairs) {
			found = append(found, relative(s))
		}
	}
	slices.SortStableFunc(found, func(a, b Relative) int { // they are in the order of their ids
		return cmp.Compare(a.seen.start, b.seen.start)
	})
	return found, nil
}

// Environ is the environment that a process was started with, NAME=value each, or what it has written over it since.
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

// Signal sends sig to the process, and to no other that has its number by now. That it is gone is no error.
func (r Relative) Signal(sig unix.Signal) error {
	h, ok := openHandle(r.seen, func(stat) bool { return true })
	if !ok {
		return nil
	}
	defer h.close()
	return h.signal(sig)
}

// SignalMain sends sig to the process's first thread, so that none of the others takes it: a handler then runs before anything else
// that this thread does.
func (r Relative) SignalMain(sig unix.Signal) error {
	if r.Gone() {
		return nil
	}
	if err := unix.Tgkill(r.PID, r.PID, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %v to the first thread of process %d (%s): %w", sig, r.PID, r.Name, err)
	}
	return nil
}

// Gone tells whether the process has ended.
func (r Relative) Gone() bool { return (&handle{stat: r.seen}).gone() }

// leaderOf tells of a process to which of the children it belongs, by the index of that.
func leaderOf(leaders []int, all []stat) func(stat) (int, bool) {
	index, parents := map[int]int{}, map[int]int{}
	for i, pid := range leaders {
		index[pid] = i
	}
	owner := maps.Clone(index) // of every process; -1: none
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
		owner[pid] = -1 // also where parents run in a circle, as those of processes that were read at different times may
		if parent := parents[pid]; parent > 0 {
			owner[pid] = of(parent)
		}
		return owner[pid]
	}
	return func(s stat) (int, bool) { i := of(s.pid); return i, i >= 0 }
}

// Usage is what a child and the processes below it have used, and are.
type Usage struct {
	// CPU is the processor time of the child, of the members of its group, and of all their descendants, with that of those who have
	// ended and were waited for. It may fall, when one of them ends whose parent does not ask.
	CPU   time.Duration
	State byte // of the child, as in ps(1): R runs, S sleeps, D waits for a disk or a file server, T was stopped, t is being traced
}

// Stopped tells whether the child was stopped (SIGSTOP, SIGTSTP, a debugger), so that nothing can be expected of it.
func (u Usage) Stopped() bool { return u.State == 'T' || u.State == 't' }

// Usages looks once at all processes, for the children with the given ids, which lead their groups. It takes some
// 15 microseconds a process of the machine.
func Usages(leaders []int) ([]Usage, error) {
	all, err := stats()
	if err != nil {
		return nil, fmt.Errorf("look at the processes: %w", err)
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

const maxExecutable = 64 << 20 // bytes of an executable that are read to tell what it is

var errTooMuch = errors.New("too much of the file would have to be read")

// IsGo tells whether a process runs a program written in Go, by what its executable holds (debug/buildinfo). A program that is
// not, and whose file is no executable that this can read, is none.
func IsGo(pid int) (bool, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false, fmt.Errorf("look at the program of process %d: %w", pid, err)
	}
	defer f.Close()
	_, err = buildinfo.Read(&boundedReader{f, maxExecutable})
	if errors.Is(err, errTooMuch) {
		return false, fmt.Errorf("look at the program of process %d: %w", pid, err)
	}
	return err == nil, nil
}

// boundedReader reads no more than so many bytes in all.
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
