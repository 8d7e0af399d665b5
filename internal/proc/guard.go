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

// GuardCommand is the first word of the command line with which this program is started as a guard; the
// program then calls [ServeGuard] with the words after it.
const GuardCommand = "guard"

// Guard is a process that outlives this one, to kill what this one has started: the kernel's parent-death signal reaches
// children alone, and only those that do not ask it away. It wakes when this process ends, however it ends, as then
// its pipe's other end is closed. It is in a group of its own and bears every signal but KILL and STOP. Its methods are safe for
// concurrent use, and do nothing for nil.
type Guard struct {
	log  *slog.Logger
	done chan struct{} // closed when the guard has ended

	mu      sync.Mutex
	process *guardProcess // nil: it has ended
	ended   bool          // by End
}

// StartGuard starts the guard of this process: this program again, as [GuardCommand] says, in the end; until then, where there is one,
// /bin/sh. log hears of a guard that has ended before End; nil: nobody does. The caller ends it with End.
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

// await notes the guard's end.
func (g *Guard) await(w *guardProcess) {
	defer close(g.done)
	_, _ = io.Copy(io.Discard, w.life) // its files are closed a moment before the process has ended
	awaitGone(context.Background(), endTimeout, []*handle{w.process})
	g.mu.Lock()
	defer g.mu.Unlock()
	w.close()
	g.process = nil
	if !g.ended {
		g.log.Warn("the guard has ended: what the workers have started may live on if this process is killed")
	}
}

// Start is [Start], of a process that runs on the given cores (nil: on those of this process), and whose whole group dies with this
// one.
func (g *Guard) Start(cores *unix.CPUSet, cmd *exec.Cmd) (*Process, error) {
	return start(g, cores, cmd)
}

// Sweep tells the guard of a cookie: whoever has it dies with this process, as by [SweepOrphans]. It is told before the first
// process with that cookie is started. An error says whom the guard may miss.
func (g *Guard) Sweep(cookie string) error {
	if err := checkCookie(cookie); err != nil || g == nil {
		return err
	}
	if err := g.order(orderCookie, cookie); err != nil {
		return fmt.Errorf("tell the guard of a cookie: %w", err)
	}
	return nil
}

// noteGroup tells the guard of a group that exists, or will not for long. Where the guard is gone the leader still dies with
// this process.
func (g *Guard) noteGroup(order byte, id int) {
	if g != nil {
		_ = g.order(order, strconv.Itoa(id))
	}
}

// order gives the guard an order. An error says that it has none, as it has ended, for one.
func (g *Guard) order(order byte, what string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.process == nil {
		return errors.New("it has ended")
	}
	return g.process.write(order, what)
}

// End ends the guard, which kills nobody.
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

// guardScript collects orders until the program that gives them is gone, and then becomes that program, from descriptor 3, as a guard that
// has all orders. A shell waits because it is ready in a sixth of the time that this program needs, and in a tenth of the memory.
const guardScript = `while read -r order; do orders="$orders $order"; done; exec /proc/self/fd/3 ` + GuardCommand + ` $orders`

const (
	orderTimeout = time.Second      // for a guard that was stopped; its pipe holds thousands of orders
	endTimeout   = 10 * time.Second // for what takes milliseconds: its start, and its end after that of its files
)

// guardProcess is one guard's process.
type guardProcess struct {
	process *handle
	orders  *os.File
	life    *os.File // ends when the process does, which alone has its other end
}

func startGuardProcess() (*guardProcess, error) {
	// the file, as the name may stand for another program by then, or for none
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
		giver.Close() // which ends a guard that there is
		life.Close()
		return nil, err
	}
	return w, nil
}

// start starts the process, with the files that it needs.
func (w *guardProcess) start(orders, program, holder *os.File) error {
	cmd := guardCommand(orders, program, holder, "/bin/sh", "-c", guardScript)
	err := startBlocked(cmd)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) { // there is no shell
		cmd = guardCommand(orders, program, holder, "/proc/self/exe", GuardCommand)
		err = startBlocked(cmd)
	}
	if err != nil {
		return err
	}
	defer func() { go reap(cmd) }() // once there is a handle: until then its number is nobody else's
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
	_ = cmd.Wait() // it is killed
	children.forget(cmd.Process.Pid)
}

// guardCommand has no variable but a cookie of its own, so that no sweep by a cookie kills it: neither its own nor that of a run around
// this one, which kills this process and so wakes the guard, and takes whoever has no cookie for an orphan. [SweepAdopted]
// kills it, and what it was to kill.
func guardCommand(orders, program, holder *os.File, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.ExtraFiles, cmd.Dir = orders, []*os.File{program, holder}, "/"
	cmd.Env = []string{CookieVariable + "=" + NewCookie()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// startBlocked starts a process with all signals blocked: it has the mask of the thread that forks it (sigprocmask(2)), and so have the
// processes that it makes, and the programs that they execute.
func startBlocked(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, own unix.Sigset_t
	for i := range all.Val {
		all.Val[i]-- // all bits
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &own); err != nil {
		return err
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &own, nil) }() // it was its mask before
	return children.start(cmd)
}

func (w *guardProcess) write(order byte, what string) error {
	if err := w.orders.SetWriteDeadline(time.Now().Add(orderTimeout)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w.orders, "%c%s\n", order, what)
	return err
}

// close is for a process that has ended.
func (w *guardProcess) close() {
	w.process.close()
	w.orders.Close()
	w.life.Close()
}
