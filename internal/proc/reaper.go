package proc

import (
	"errors"
	"fmt"
	"os"
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
func (f *family) adopt(more int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.adopting == 0 {
		if err := f.note(); err != nil {
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
func (f *family) reap() (left bool) {
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
