package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	reapPause = 20 * time.Millisecond // lets callers that wait for their own child do so first
	reapShare = 100                   // the thread spends at most one part in reapShare of its time looking at processes
)

// Reaper waits for orphans that become children of this process, so that they do not stay zombies.
type Reaper struct {
	ended chan os.Signal
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once
}

// Subreaper makes this process the parent of its descendants whose own parents end, in place of init (prctl(2), PR_SET_CHILD_SUBREAPER),
// and waits for those that end. It never takes the status of a child that other code here waits for: neither that of a [Process] nor that
// of a child that os/exec started in this process's own group.
//
// The caller must call Close. There may be several Reapers; the process is a subreaper until the last one is closed.
func Subreaper() (*Reaper, error) {
	if err := children.adopt(1); err != nil {
		return nil, fmt.Errorf("make this process the parent of its orphaned descendants: %w", err)
	}
	r := &Reaper{ended: make(chan os.Signal, 1), stop: make(chan struct{}), done: make(chan struct{})}
	signal.Notify(r.ended, unix.SIGCHLD)
	go r.run()
	return r, nil
}

// Close reaps once more and stops the Reaper.
func (r *Reaper) Close() error {
	var err error
	r.once.Do(func() {
		signal.Stop(r.ended)
		close(r.stop)
		<-r.done
		err = children.adopt(-1)
	})
	return err
}

func (r *Reaper) run() {
	defer close(r.done)
	defer children.reap()
	runtime.LockOSThread() // threadTime measures this thread
	defer runtime.UnlockOSThread()
	for {
		select {
		case <-r.ended:
		case <-r.stop:
			return
		}
		for pause := reapPause; ; {
			select {
			case <-time.After(pause):
			case <-r.stop:
				return
			}
			began := threadTime()
			if !children.reap() {
				break
			}
			pause = max(reapPause, reapShare*(threadTime()-began)) // a child whose own waiter is late may hide others
		}
	}
}

// threadTime returns the processor time of this thread. By wall-clock time a look takes long on a busy machine, and orphans would stay
// zombies for a hundred times as long.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // every Linux supports it
	return time.Duration(t.Nano())
}

// adopt adds more to the number of Reapers, and makes this process a subreaper or ends that.
func (f *childTable) adopt(more int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.adopting == 0 {
		if err := f.noteDescendants(); err != nil {
			return err
		}
	}
	var on uintptr
	if f.adopting+more > 0 {
		on = 1
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, on, 0, 0, 0); err != nil {
		return err
	}
	f.adopting += more
	return nil
}

// reap waits for all orphans that have ended. It reports whether an ended child is left, for which other code waits.
func (f *childTable) reap() (left bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !someEnded() {
		return false
	}
	all, err := stats()
	if err != nil {
		return true
	}
	for _, s := range all {
		if s.zombie() && f.orphan(s) {
			_ = waitid(unix.P_PID, s.pid, nil, unix.WEXITED|unix.WNOHANG)
		}
	}
	return someEnded()
}

// someEnded reports whether a child has ended and not been waited for. It does not wait for it.
func someEnded() bool {
	var info unix.Siginfo
	err := waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
	return err == nil && info.Signo != 0
}

func waitid(kind, id int, info *unix.Siginfo, options int) error {
	for {
		if err := unix.Waitid(kind, id, info, options, nil); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// children holds the children of this process that some code waits for. The kernel has one table of children per process, so there is only
// one here.
var children = childTable{waited: map[int]int{}}

type childTable struct {
	mu       sync.Mutex
	waited   map[int]int // how often each process ID is waited for: it may be reused before its last waiter has called forget
	adopting int         // number of Reapers

	earlier map[pidStart]bool // descendants from before the first Reaper
}

// start starts cmd in its own group. The child is never taken for an orphan, even if it ends at once.
func (f *childTable) start(cmd *exec.Cmd) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	f.waited[cmd.Process.Pid]++
	return nil
}

// forget removes a child that has been waited for.
func (f *childTable) forget(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waited[pid]--; f.waited[pid] == 0 {
		delete(f.waited, pid)
	}
}

// noteDescendants records the present descendants of this process, except those that are waited for: a program that executes another leaves
// its children to that one. The caller holds f.mu.
func (f *childTable) noteDescendants() error {
	all, err := stats()
	if err != nil {
		return err
	}
	f.earlier = map[pidStart]bool{}
	ours := map[int]bool{unix.Getpid(): true}
	for grew := true; grew; { // a child may have a smaller ID than its parent
		grew = false
		for _, s := range all {
			if ours[s.parent] && !ours[s.pid] && f.waited[s.pid] == 0 {
				ours[s.pid], f.earlier[s.pidStart()], grew = true, true, true
			}
		}
	}
	return nil
}

// isOrphanOfWorker reports whether a process is an orphan that a worker has left. self is the ID of this process. The first process of a
// container (self is 1) also gets orphans of others, so there the answer is false.
func (f *childTable) isOrphanOfWorker(s stat, self int) bool {
	if s.parent != self || self == 1 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.orphan(s) && !f.earlier[s.pidStart()]
}

// orphan reports whether the kernel made a process a child of this one because its parent ended. Children that this process started are
// either waited for or in its own group. The caller holds f.mu.
func (f *childTable) orphan(s stat) bool {
	return s.parent == unix.Getpid() && s.group != unix.Getpgrp() && f.waited[s.pid] == 0
}
