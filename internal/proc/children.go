package proc

import (
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// children are those of this process that somebody waits for. The kernel has one table of them for the process, and so have we.
var children = family{waited: map[int]int{}}

type family struct {
	mu       sync.Mutex
	waited   map[int]int // by process id, how often: a number can be another's before its last waiter has taken note
	adopting int         // how many Reapers there are

	earlier map[pidStart]bool // descendants from before the first of them
}

// start starts cmd in a group of its own; with a cookie among its variables it has the mark of that as well, where the kernel lets it.
// Nobody takes it for an orphan, even if it ends at once.
func (f *family) start(cmd *exec.Cmd) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	start := cmd.Start
	if cookie, ok := cookieIn(cmd.Env); ok {
		start = func() error { return markOf(cookie).give(cmd.Start) }
	}
	if err := start(); err != nil {
		return err
	}
	f.waited[cmd.Process.Pid]++
	return nil
}

// canMark tells why children cannot be given a mark, where they cannot.
func (f *family) canMark(m mark) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return m.try()
}

// forget is for a child that has been waited for.
func (f *family) forget(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waited[pid]--; f.waited[pid] == 0 {
		delete(f.waited, pid)
	}
}

// note remembers the descendants that this process has now, but for those that are waited for. A program that executes another leaves it
// its children. The caller holds f.mu.
func (f *family) note() error {
	all, err := stats()
	if err != nil {
		return err
	}
	f.earlier = map[pidStart]bool{}
	ours := map[int]bool{unix.Getpid(): true}
	for grew := true; grew; { // a child may have a smaller number than its parent
		grew = false
		for _, s := range all {
			if ours[s.parent] && !ours[s.pid] && f.waited[s.pid] == 0 {
				ours[s.pid], f.earlier[s.pidStart()], grew = true, true, true
			}
		}
	}
	return nil
}

// isStray tells whether a process is an orphan that some worker has left, in the process self, which is this one. The first process
// of a container is handed those of others, too.
func (f *family) isStray(s stat, self int) bool {
	if s.parent != self || self == 1 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.orphan(s) && !f.earlier[s.pidStart()]
}

// isHelper tells whether a process is a child that os/exec started elsewhere. It may have the mark of one that was started at the same
// moment.
func isHelper(s stat) bool { return s.parent == unix.Getpid() && s.group == unix.Getpgrp() }

// orphan tells whether a process was handed to this one by the kernel, as its parent ended: it is a child that nobody
// started here, as those are either waited for or in this process's own group. The caller holds f.mu.
func (f *family) orphan(s stat) bool {
	return s.parent == unix.Getpid() && s.group != unix.Getpgrp() && f.waited[s.pid] == 0
}
