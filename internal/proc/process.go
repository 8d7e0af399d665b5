package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Process is a started child. Its methods are safe for concurrent use.
type Process struct {
	cmd   *exec.Cmd
	guard *Guard
	done  chan struct{}
	err   error // of cmd.Wait; read after done

	mu    sync.Mutex
	ended bool // the process id may soon belong to another process
}

// Start starts cmd as the leader of a new process group. When the leader ends the rest of its group
// is killed; when this process dies, the leader is ([Guard.Start]: all of it). The
// error is exec's own where the command cannot be started. cmd must be left to the Process.
//
// The parent-death signal fires when the thread that forked ends, not the process
// (prctl(2), PR_SET_PDEATHSIG), and Go ends threads as it likes (golang/go#27505): so a goroutine that
// is locked to its thread starts the child and stays until the child has gone.
func Start(cmd *exec.Cmd) (*Process, error) { return start(nil, nil, cmd) }

func start(guard *Guard, cores *unix.CPUSet, cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &Process{cmd: cmd, guard: guard, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := startOn(cores, cmd); err != nil {
			started <- err
			return
		}
		guard.noteGroup(orderGroup, p.Pid())
		started <- nil
		p.await()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// startOn starts cmd from a thread that is on the child's cores for that moment: a child has those of the thread that forks
// it (sched_setaffinity(2)).
func startOn(cores *unix.CPUSet, cmd *exec.Cmd) error {
	if cores == nil {
		return children.start(cmd)
	}
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		return fmt.Errorf("read the cores of this thread: %w", err)
	}
	if err := unix.SchedSetaffinity(0, cores); err != nil {
		return fmt.Errorf("bind the process to cores: %w", err)
	}
	err := children.start(cmd)
	if back := unix.SchedSetaffinity(0, &own); back != nil && err == nil {
		runtime.LockOSThread() // once more than it is unlocked: Go ends the thread with its goroutine, and it serves no other
	}
	return err
}

// await waits for the child's end, ends its group, and reaps it. The order matters: as long
// as the child is not reaped no other process can get its id, so that the KILL reaches
// nobody else.
func (p *Process) await() {
	_ = waitid(unix.P_PID, p.Pid(), nil, unix.WEXITED|unix.WNOWAIT) // it is our child, and not yet waited for
	p.mu.Lock()
	p.kill(syscall.SIGKILL)
	p.ended = true
	p.mu.Unlock()
	p.guard.noteGroup(orderDone, p.Pid())
	p.err = p.cmd.Wait() // unlocked: it waits as long as anybody holds the output open
	children.forget(p.Pid())
}

// Pid is the child's process id, and that of its group.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and its output has been read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends sig to every process of the child's group, unless the child has ended. A group that
// is gone is no error.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil
	}
	return p.kill(sig)
}

func (p *Process) kill(sig syscall.Signal) error {
	// EPERM: what is left of the group has changed its user.
	err := unix.Kill(-p.Pid(), sig)
	if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("send %v to process group %d: %w", sig, p.Pid(), err)
	}
	return nil
}

// End tells how the child ended, once Done is closed: its exit code, or the signal that killed it.
func (p *Process) End() (exit int, sig syscall.Signal) {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 0, status.Signal()
	}
	return p.cmd.ProcessState.ExitCode(), 0
}

// Code is the child's exit code as a shell gives it: 128+N for signal N.
func (p *Process) Code() int {
	exit, sig := p.End()
	if sig != 0 {
		return 128 + int(sig)
	}
	return exit
}

// Err is a failure to read the child's output, once Done is closed; how the child
// itself ended is no error here.
func (p *Process) Err() error {
	if errors.As(p.err, new(*exec.ExitError)) {
		return nil
	}
	return p.err
}

// Warn sends sig to those processes of the child's group alone that have a handler for it, as it would kill the others: to the leader, or
// else, on every way down from it, to the first that has one. So the program behind a shell hears of it, and the
// helpers of a program that has a handler do not. It returns to how many it was sent; 0: none has a handler.
func (p *Process) Warn(sig syscall.Signal) (sent int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return 0, nil
	}
	all, err := stats()
	if err != nil {
		return 0, err
	}
	all = slices.DeleteFunc(all, func(s stat) bool { return s.group != p.Pid() || s.zombie() })
	return warn(all, sig)
}

// warn sends sig to those of a child's processes that [Process.Warn] names.
func warn(all []stat, sig syscall.Signal) (sent int, err error) {
	members := map[int]stat{}
	below := map[int][]stat{}
	for _, s := range all {
		members[s.pid] = s
	}
	var next []stat
	for _, s := range members {
		if _, ok := members[s.parent]; ok {
			below[s.parent] = append(below[s.parent], s)
		} else {
			next = append(next, s) // the leader, and those whose parents have ended
		}
	}
	for len(next) > 0 {
		s := next[0]
		next = next[1:]
		handles, e := Handles(s.pid, sig)
		if e != nil {
			continue // gone
		}
		if !handles {
			next = append(next, below[s.pid]...)
			continue
		}
		h, ok := openHandle(s, func(now stat) bool { return now.group == s.group })
		if !ok {
			continue
		}
		if e := h.signal(unix.Signal(sig)); e != nil {
			err = errors.Join(err, e)
		} else {
			sent++
		}
		h.close()
	}
	return sent, err
}

const (
	maxStatus = 64 << 10 // bytes of /proc/PID/status: a line names every group of the user
	maxSignal = 64
)

// Handles tells whether a process has a handler for a signal, as /proc/PID/status says (SigCgt; proc(5)). All threads of a
// process have the same handlers. A process that has none dies of most signals, or ignores them.
func Handles(pid int, sig syscall.Signal) (bool, error) {
	text, err := readSome(fmt.Sprintf("/proc/%d/status", pid), maxStatus)
	if err != nil {
		return false, fmt.Errorf("ask for the signal handlers of process %d: %w", pid, err)
	}
	caught, err := caughtSignals(text)
	if err != nil {
		return false, fmt.Errorf("ask for the signal handlers of process %d: %w", pid, err)
	}
	return sig >= 1 && sig <= maxSignal && caught>>(sig-1)&1 == 1, nil
}

func caughtSignals(status []byte) (uint64, error) {
	for line := range bytes.Lines(status) {
		if mask, ok := bytes.CutPrefix(line, []byte("SigCgt:")); ok {
			return strconv.ParseUint(string(bytes.TrimSpace(mask)), 16, 64)
		}
	}
	return 0, fmt.Errorf("%.40q has no line SigCgt", status)
}
