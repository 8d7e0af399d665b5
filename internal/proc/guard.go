package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// GuardCommand is the first argument of the command line that starts this program as a guard. The program then calls [ServeGuard] with the
// remaining arguments.
const GuardCommand = "guard"

// Guard is a process that outlives this one and then kills what this one has started. The kernel's parent-death signal reaches only direct
// children, and a child can disable it. The guard wakes when this process ends in any way, because that closes the other end of its pipe.
// It is in its own group and ignores every signal except KILL and STOP. The methods of a Guard are safe for concurrent use, and do nothing
// on a nil Guard.
type Guard struct {
	log  *slog.Logger
	done chan struct{} // closed when the guard has ended

	mu      sync.Mutex
	process *guardProcess // nil after it has ended
	ended   bool          // End was called
}

// StartGuard starts the guard of this process. The guard is this program, started with [GuardCommand]; until it is needed, /bin/sh waits in
// its place, if that exists. A warning goes to log if the guard ends before End is called; log may be nil. The caller must call End.
func StartGuard(log *slog.Logger) (*Guard, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	w, err := startGuardProcess()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	g := &Guard{log: log, done: make(chan struct{}), process: w}
	go g.await(w)
	return g, nil
}

// await waits for the guard's end and records it.
func (g *Guard) await(w *guardProcess) {
	defer close(g.done)
	_, _ = io.Copy(io.Discard, w.life) // the guard's files are closed a moment before the process ends
	awaitGone(context.Background(), endTimeout, []*handle{w.process})
	g.mu.Lock()
	defer g.mu.Unlock()
	w.close()
	g.process = nil
	if !g.ended {
		g.log.Warn("the guard process has ended: if this process is killed, processes of its workers may keep running")
	}
}

// Start is [Start] for a process that runs on the given cores, or on those of this process if cores is nil, and whose whole group is killed
// when this process ends.
func (g *Guard) Start(cores *unix.CPUSet, cmd *exec.Cmd) (*Process, error) {
	return start(g, cores, cmd)
}

// Sweep gives the guard a cookie: every process that has it is killed when this process ends, as by [SweepOrphans]. It must be called
// before the first process with that cookie starts. If it fails, the guard will not kill those processes.
func (g *Guard) Sweep(cookie string) error {
	if err := checkCookie(cookie); err != nil || g == nil {
		return err
	}
	if err := g.order(orderCookie, cookie); err != nil {
		return fmt.Errorf("send the guard a cookie: %w", err)
	}
	return nil
}

// noteGroup tells the guard that a group exists or has ended. Without a guard the group's leader is still killed when this process ends.
func (g *Guard) noteGroup(order byte, id int) {
	if g != nil {
		_ = g.order(order, strconv.Itoa(id))
	}
}

// order gives the guard an order. It fails if the guard does not receive it, for example because the guard has ended.
func (g *Guard) order(order byte, what string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.process == nil {
		return errors.New("the guard has ended")
	}
	return g.process.write(order, what)
}

// End ends the guard without killing anything else.
func (g *Guard) End() {
	if g == nil {
		return
	}
	g.mu.Lock()
	g.ended = true
	if g.process != nil {
		_ = g.process.process.signal(unix.SIGKILL) // before the pipe is closed
	}
	g.mu.Unlock()
	<-g.done
}

// guardScript collects orders until the program that gives them has ended. It then executes that program, from descriptor 3, as a guard
// with all the orders. A shell waits in its place because it starts in a sixth of the time, and uses a tenth of the memory.
const guardScript = `while read -r order; do orders="$orders $order"; done; exec /proc/self/fd/3 ` + GuardCommand + ` $orders`

const (
	orderTimeout = time.Second      // if the guard was stopped; its pipe holds thousands of orders
	endTimeout   = 10 * time.Second // for the guard's start, and for its end after its files are closed; each takes milliseconds
)

// guardProcess is the process of a guard.
type guardProcess struct {
	process *handle
	orders  *os.File
	life    *os.File // at its end when the process ends, which alone holds the other end
}

func startGuardProcess() (*guardProcess, error) {
	// Open the file, because the path may name another program or none when the guard needs it.
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer program.Close()
	orders, giver, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer orders.Close()
	life, holder, err := os.Pipe()
	if err != nil {
		giver.Close()
		return nil, err
	}
	w := &guardProcess{orders: giver, life: life}
	err = w.start(orders, program, holder)
	holder.Close()
	if err != nil {
		giver.Close() // ends a guard that has been started
		life.Close()
		return nil, err
	}
	return w, nil
}

// start starts the process with the files that it needs.
func (w *guardProcess) start(orders, program, holder *os.File) error {
	cmd := guardCommand(orders, program, holder, "/bin/sh", "-c", guardScript)
	err := startBlocked(cmd)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) { // no shell
		cmd = guardCommand(orders, program, holder, "/proc/self/exe", GuardCommand)
		err = startBlocked(cmd)
	}
	if err != nil {
		return err
	}
	defer func() { go reap(cmd) }() // only after the handle is open: until then the process ID cannot be reused
	s, err := readStat(cmd.Process.Pid)
	if err != nil {
		return err
	}
	process, ok := openHandle(s, func(s stat) bool { return s.group == cmd.Process.Pid })
	if !ok {
		return fmt.Errorf("process %d has ended", cmd.Process.Pid)
	}
	w.process = process
	return nil
}

// reap waits for a child that startBlocked has started.
func reap(cmd *exec.Cmd) {
	_ = cmd.Wait() // it has been killed
	children.forget(cmd.Process.Pid)
}

// guardCommand gives the guard a cookie of its own and no other variable. So no sweep by a cookie kills it: neither that of its own run,
// nor that of an enclosing run, which kills this process (and so wakes the guard) and takes processes without a cookie for orphans.
// [SweepAdopted] kills the guard, and what the guard would have killed.
func guardCommand(orders, program, holder *os.File, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.ExtraFiles, cmd.Dir = orders, []*os.File{program, holder}, "/"
	cmd.Env = []string{CookieVariable + "=" + NewCookie()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// startBlocked starts a process with all signals blocked. A process inherits the signal mask of the thread that forks it (sigprocmask(2)),
// and passes it on to its children and to the programs that it executes.
func startBlocked(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, own unix.Sigset_t
	for i := range all.Val {
		all.Val[i]-- // sets all bits
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &own); err != nil {
		return err
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &own, nil) }() // it was the thread's mask before
	return children.start(cmd)
}

func (w *guardProcess) write(order byte, what string) error {
	if err := w.orders.SetWriteDeadline(time.Now().Add(orderTimeout)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w.orders, "%c%s\n", order, what)
	return err
}

// close closes the files of a process that has ended.
func (w *guardProcess) close() {
	w.process.close()
	w.orders.Close()
	w.life.Close()
}
