package proc

import (
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// GuardCommand is the first word of the command line with which this program is started as a guard; the
// program then calls [ServeGuard] with the words after it.
const GuardCommand = "guard"

// maxGuards is how many guards one after the other are started: something that ends them may end every one.
const maxGuards = 10

// Guard is a process that outlives this one, to kill what this one has started: the kernel's parent-death signal reaches
// children alone, and only those that do not ask it away. It wakes when this process ends, however it ends, as then
// its pipe's other end is closed. It is in a group of its own and bears every signal but KILL and STOP; one that
// ends all the same is followed by another, with the same orders. Its methods are safe for concurrent use, and do nothing for nil.
type Guard struct {
	log  *slog.Logger
	done chan struct{} // closed when the last guard has ended

	mu      sync.Mutex
	watcher *watcher // nil: there is none any more
	ended   bool     // by End
	cookies []string
	groups  map[int]bool
}

// StartGuard starts the guard of this process: this program again, as [GuardCommand] says, in the end; until then, where there is one,
// /bin/sh. log hears of a guard that has ended; nil: nobody does. The caller ends it with End.
//
// It is to be called before [Subreaper]: the guard then is no descendant of this process, and whoever kills all of those with it, as
// Slurm does that knows a step's processes by their parents (proctrack/linuxproc), leaves the guard to find what came too late for that.
func StartGuard(log *slog.Logger) (*Guard, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	w, err := startWatcher()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	g := &Guard{log: log, done: make(chan struct{}), watcher: w, groups: map[int]bool{}}
	go g.keep(w)
	return g, nil
}

// keep waits for the end of each guard, and starts the next.
func (g *Guard) keep(w *watcher) {
	defer close(g.done)
	for n := 1; w != nil; n++ {
		w.await()
		w = g.follow(w, n < maxGuards)
	}
}

// follow starts a guard after one that has ended, unless End has ended it, and repeats its orders.
func (g *Guard) follow(old *watcher, another bool) *watcher {
	g.mu.Lock()
	defer g.mu.Unlock()
	old.close()
	g.watcher = nil
	if g.ended {
		return nil
	}
	err := errors.New("too many of them have ended")
	if another {
		g.watcher, err = startWatcher()
	}
	if err == nil {
		err = g.repeat()
	}
	if err != nil {
		g.log.Error("the guard, which ends what the workers have started if this process is killed, has ended, and another has not all orders", "error", err)
		return g.watcher
	}
	g.log.Warn("the guard, which ends what the workers have started if this process is killed, has ended, and another was started")
	return g.watcher
}

// repeat gives all orders to a new guard. The caller holds g.mu.
func (g *Guard) repeat() (err error) {
	for _, cookie := range g.cookies {
		err = errors.Join(err, g.watcher.order(orderCookie, cookie))
	}
	for group := range g.groups {
		err = errors.Join(err, g.watcher.order(orderGroup, strconv.Itoa(group)))
	}
	return err
}

// Start is [StartOn], of a process whose whole group dies with this one.
func (g *Guard) Start(cores *unix.CPUSet, cmd *exec.Cmd) (*Process, error) {
	return start(g, cores, cmd)
}

// Sweep tells the guard of a cookie: whoever has it dies with this process, as by [Sweep]. It is told before the first
// process with that cookie is started. An error says whom the guard may miss.
func (g *Guard) Sweep(cookie string) error {
	if err := checkCookie(cookie); err != nil || g == nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cookies = append(g.cookies, cookie)
	err := children.canMark(markOf(cookie))
	if e := g.order(orderCookie, cookie); e != nil {
		err = errors.Join(err, fmt.Errorf("tell the guard of a cookie: %w", e))
	}
	return err
}

// group tells the guard of a group that exists, or will not for long. Where the guard is gone the leader still dies with
// this process.
func (g *Guard) group(order byte, id int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if order == orderGroup {
		g.groups[id] = true
	} else {
		delete(g.groups, id)
	}
	_ = g.order(order, strconv.Itoa(id))
}

// order gives an order that has been noted. One that has ended is followed by another, which is told. The caller holds g.mu.
func (g *Guard) order(order byte, what string) error {
	if g.watcher == nil {
		return errors.New("it is gone")
	}
	if err := g.watcher.order(order, what); !errors.Is(err, syscall.EPIPE) {
		return err
	}
	return nil
}

// End ends the guard, which kills nobody.
func (g *Guard) End() {
	if g == nil {
		return
	}
	g.mu.Lock()
	g.ended = true
	if g.watcher != nil {
		_ = g.watcher.process.signal(unix.SIGKILL) // before the pipe is closed
	}
	g.mu.Unlock()
	<-g.done
}
