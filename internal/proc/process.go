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
	err   error // of cmd.Wait; valid after done is closed

	mu    sync.Mutex
	ended bool // the process ID may be reused
}

// Start starts cmd as the leader of a new process group. When the leader ends, the rest of its group is killed. When this process ends, the
// leader is killed (with [Guard.Start], the whole group). If the command cannot be started, the error is that of os/exec. The caller must
// not use cmd afterwards.
//
// The parent-death signal is sent when the thread that forked ends, not when the process ends (prctl(2), PR_SET_PDEATHSIG), and Go ends
// threads at any time (golang/go#27505). So the child is started by a goroutine that is locked to its thread and remains until the child
// has ended.
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

// startOn starts cmd from a thread that is bound to the child's cores for that time: a child inherits the cores of the thread that forks it
// (sched_setaffinity(2)).
func startOn(cores *unix.CPUSet, cmd *exec.Cmd) error {
	if cores == nil {
		return children.start(cmd)
	}
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		return fmt.Errorf("read the CPU affinity of this thread: %w", err)
	}
	if err := unix.SchedSetaffinity(0, cores); err != nil {
		return fmt.Errorf("bind the process to its cores: %w", err)
	}
	err := children.start(cmd)
	if back := unix.SchedSetaffinity(0, &own); back != nil && err == nil {
		runtime.LockOSThread() // locked once more than unlocked, so that Go ends the thread with its goroutine and does not reuse it
	}
	return err
}

// await waits for the child's end, kills the rest of its group, and then reaps the child. The order matters: until the child is reaped no
// other process can get its ID, so that the KILL reaches only its group.
func (p *Process) await() {
	_ = waitid(unix.P_PID, p.Pid(), nil, unix.WEXITED|unix.WNOWAIT) // it is our child, and has not been waited for
	p.mu.Lock()
	p.kill(syscall.SIGKILL)
	p.ended = true
	p.mu.Unlock()
	p.guard.noteGroup(orderDone, p.Pid())
	p.err = p.cmd.Wait() // without the lock, because it waits while anyone holds the output open
	children.forget(p.Pid())
}

// Pid returns the child's process ID, which is also that of its group.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the child has ended and its output has been read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends sig to every process of the child's group, unless the child has ended. It is not an error if the group no longer exists.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil
	}
	return p.kill(sig)
}

func (p *Process) kill(sig syscall.Signal) error {
	// EPERM: the remaining processes of the group have changed their user.
	err := unix.Kill(-p.Pid(), sig)
	if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("send %v to process group %d: %w", sig, p.Pid(), err)
	}
	return nil
}

// End returns how the child ended: its exit code, or the signal that killed it. It is valid after Done is closed.
func (p *Process) End() (exit int, sig syscall.Signal) {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 0, status.Signal()
	}
	return p.cmd.ProcessState.ExitCode(), 0
}

// Code returns the child's exit code as a shell reports it: 128+N for signal N.
func (p *Process) Code() int {
	exit, sig := p.End()
	if sig != 0 {
		return 128 + int(sig)
	}
	return exit
}

// Err returns the error of reading the child's output, after Done is closed. A failure of the child itself is not included.
func (p *Process) Err() error {
	if errors.As(p.err, new(*exec.ExitError)) {
		return nil
	}
	return p.err
}

// Warn sends sig only to processes of the child's group that have a handler for it, as the signal would kill the others. It goes to the
// leader, or else, on each branch below it, to the first process with a handler. So the program behind a shell receives it, and the helpers
// of a program with a handler do not. Warn returns the number of processes that it signaled; 0 means that none has a handler.
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

// warn sends sig as [Process.Warn] does, to the processes in all.
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
			next = append(next, s) // the leader, and processes whose parents have ended
		}
	}
	for len(next) > 0 {
		s := next[0]
		next = next[1:]
		handles, e := Handles(s.pid, sig)
		if e != nil {
			continue // it has ended
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
	maxStatus = 64 << 10 // bytes of /proc/PID/status, where one line names all groups of the user
	maxSignal = 64
)

// Handles reports whether a process has a handler for a signal, according to /proc/PID/status (SigCgt; proc(5)). All threads of a process
// share their handlers. Without a handler most signals kill a process, or are ignored.
func Handles(pid int, sig syscall.Signal) (bool, error) {
	text, err := readSome(fmt.Sprintf("/proc/%d/status", pid), maxStatus)
	if err != nil {
		return false, fmt.Errorf("read the signal handlers of process %d: %w", pid, err)
	}
	caught, err := caughtSignals(text)
	if err != nil {
		return false, fmt.Errorf("read the signal handlers of process %d: %w", pid, err)
	}
	return sig >= 1 && sig <= maxSignal && caught>>(sig-1)&1 == 1, nil
}

func caughtSignals(status []byte) (uint64, error) {
	for line := range bytes.Lines(status) {
		if mask, ok := bytes.CutPrefix(line, []byte("SigCgt:")); ok {
			return strconv.ParseUint(string(bytes.TrimSpace(mask)), 16, 64)
		}
	}
	return 0, fmt.Errorf("no SigCgt line in %.40q", status)
}
