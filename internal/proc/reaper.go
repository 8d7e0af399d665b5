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
	reapPause = 20 * time.Millisecond // for those who wait for a child of their own to do so first
	reapShare = 100                   // looking at all processes takes no more than one part in so many of a core
)

// Reaper waits for the orphans that become children of this process, so that none stays a zombie.
type Reaper struct {
	ended chan os.Signal
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once
}

// Subreaper makes this process the one that its descendants become children of when their own parents end, instead of
// init (prctl(2), PR_SET_CHILD_SUBREAPER), and waits for those of them that end. It never takes the status of a child that
// somebody here waits for: neither that of a [Process] nor that of one that os/exec started in this process's own group.
//
// The caller ends it with Close. There may be several; the process is a subreaper until the last is closed.
func Subreaper() (*Reaper, error) {
	if err := children.adopt(1); err != nil {
		return nil, fmt.Errorf("make this process the parent of its orphaned descendants: %w", err)
	}
	r := &Reaper{ended: make(chan os.Signal, 1), stop: make(chan struct{}), done: make(chan struct{})}
	signal.Notify(r.ended, unix.SIGCHLD)
	go r.run()
	return r, nil
}

// Close ends the reaping, after a last round of it.
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
	runtime.LockOSThread() // whose time is counted
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
			pause = max(reapPause, reapShare*(threadTime()-began)) // a child that its own waiter is late for may hide others
		}
	}
}

// threadTime is what this thread has had of a core. By a clock on the wall a look takes long on a machine that has other things to do, and
// orphans would stay zombies for a hundred times as long.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // every Linux has it
	return time.Duration(t.Nano())
}

// adopt makes this process a subreaper for one Reaper more, or fewer.
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

// reap waits for all orphans that have ended. It tells whether a child is left that has ended: somebody else waits for it.
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

// someEnded tells whether there is a child to wait for, and leaves it.
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

// children are those of this process that somebody waits for. The kernel has one table of them for the process, and so have we.
var children = childTable{waited: map[int]int{}}

type childTable struct {
	mu       sync.Mutex
	waited   map[int]int // by process id, how often: a number can be another's before its last waiter has taken note
	adopting int         // how many Reapers there are

	earlier map[pidStart]bool // descendants from before the first of them
}

// start starts cmd in a group of its own. Nobody takes it for an orphan, even if it ends at once.
func (f *childTable) start(cmd *exec.Cmd) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	f.waited[cmd.Process.Pid]++
	return nil
}

// forget is for a child that has been waited for.
func (f *childTable) forget(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waited[pid]--; f.waited[pid] == 0 {
		delete(f.waited, pid)
	}
}

// noteDescendants remembers the descendants that this process has now, but for those that are waited for. A program that executes another
// leaves it its children. The caller holds f.mu.
func (f *childTable) noteDescendants() error {
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

// isOrphanOfWorker tells whether a process is an orphan that some worker has left, in the process self, which is this one. The first
// process of a container is handed those of others, too.
func (f *childTable) isOrphanOfWorker(s stat, self int) bool {
	if s.parent != self || self == 1 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.orphan(s) && !f.earlier[s.pidStart()]
}

// orphan tells whether a process was handed to this one by the kernel, as its parent ended: it is a child that nobody
// started here, as those are either waited for or in this process's own group. The caller holds f.mu.
func (f *childTable) orphan(s stat) bool {
	return s.parent == unix.Getpid() && s.group != unix.Getpgrp() && f.waited[s.pid] == 0
}
