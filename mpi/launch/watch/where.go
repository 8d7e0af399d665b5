package watch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"ddpbatch/internal/proc"

	"golang.org/x/sys/unix"
)

// Condition is where a worker is held up, as far as the kernel tells: evidence of who waits, and of who is waited for.
type Condition struct {
	Stopped bool   `json:"stopped,omitempty"` // by SIGSTOP or a debugger
	Held    bool   `json:"held,omitempty"`    // by a disk, a file server or a device, which no signal ends
	Sleeps  bool   `json:"sleeps,omitempty"`  // until some time has passed
	Text    string `json:"text"`              // for people: "in futex"
}

// Where tells of a child that leads its group where its first thread is, or, where it is a shell that waits for its only child,
// where that one's is.
func Where(leader int) Condition {
	relatives, err := proc.Relatives(leader)
	if err != nil || len(relatives) == 0 {
		return Condition{Text: "it has ended"}
	}
	r := relatives[0]
	for { // a parent is listed once, so this ends
		t, _, _, err := readThread(fmt.Sprintf("/proc/%d/task/%d/", r.PID, r.PID))
		if err != nil {
			return Condition{Text: "it has ended"}
		}
		child, only := onlyChild(relatives, r.PID)
		if only && t.waitsForChild() {
			r = child
			continue
		}
		return t.condition()
	}
}

// waitsForChild tells whether the thread waits for the end of a child, or, as shells do, for the signal that tells of it.
func (t thread) waitsForChild() bool {
	switch t.call {
	case "wait4", "waitid", "rt_sigsuspend":
		return true
	}
	return t.waits == "do_wait"
}

func onlyChild(relatives []proc.Relative, parent int) (child proc.Relative, only bool) {
	for _, r := range relatives {
		if r.Parent == parent && r.PID != parent {
			if only {
				return child, false
			}
			child, only = r, true
		}
	}
	return child, only
}

func (t thread) condition() Condition {
	p := Condition{Text: "waiting"}
	if t.call != "" {
		p.Text = "in " + t.call
	}
	switch {
	case strings.HasPrefix(t.state, "T"):
		p.Stopped, p.Text = true, "stopped by a signal (SIGSTOP)"
	case strings.HasPrefix(t.state, "t"):
		p.Stopped, p.Text = true, "stopped by a debugger"
	case strings.HasPrefix(t.state, "D"):
		p.Held, p.Text = true, "held by a disk, a file server or a device, "+p.Text
	case strings.HasPrefix(t.state, "R"):
		p.Text = "running"
	case t.call == "nanosleep", t.call == "clock_nanosleep", strings.Contains(t.waits, "nanosleep"):
		p.Sleeps, p.Text = true, "asleep"
	}
	return p
}

const (
	maxThreads = 1024
	maxFile    = 16 << 10 // bytes of a file of one thread
)

// thread is where one thread is. Many threads of a pool are at the same place.
type thread struct {
	name, state string
	waits       string // the function of the kernel that it waits in; "": none, or not told
	call        string // the system call that it is in; "": none, or not told
	stack       string // the kernel's, a function a line; "": not told
}

// threadsText tells where the threads of a process are, those at the same place together.
func threadsText(pid int) string {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return "  it has ended meanwhile\n"
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxThreads)
	var places []thread
	at, arguments := map[thread][]string{}, map[thread]string{}
	var denied string
	for _, id := range names {
		if _, err := strconv.Atoi(id); err != nil {
			continue
		}
		t, with, why, err := readThread(fmt.Sprintf("/proc/%d/task/%s/", pid, id))
		if err != nil {
			continue // it has ended
		}
		if at[t] == nil {
			places, arguments[t] = append(places, t), with
		}
		at[t] = append(at[t], id)
		denied = why
	}
	var b strings.Builder
	for _, t := range places {
		b.WriteString(t.text(at[t], arguments[t]))
	}
	if denied != "" {
		fmt.Fprintf(&b, "  (%s)\n", denied)
	}
	return b.String()
}

// readThread reads what the kernel tells: beside the place, the arguments of the system call. denied says what it does not
// tell this user.
func readThread(dir string) (t thread, arguments, denied string, err error) {
	status, err := readFile(dir + "status")
	if err != nil {
		return t, "", "", err
	}
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "Name":
			t.name = strings.TrimSpace(value)
		case "State":
			t.state = strings.TrimSpace(value)
		}
	}
	if t.waits, err = readFile(dir + "wchan"); err == nil && t.waits == "0" {
		t.waits = ""
	}
	call, callErr := readFile(dir + "syscall")
	t.call, arguments = parseCall(call)
	var stackErr error
	t.stack, stackErr = readFile(dir + "stack")
	switch {
	case errors.Is(callErr, os.ErrPermission):
		denied = "this user may not know its system calls and its stacks in the kernel: the system allows that to debuggers of it alone (ptrace(2))"
	case errors.Is(stackErr, os.ErrPermission):
		denied = "only root may see its stacks in the kernel"
	}
	return t, arguments, denied, nil
}

// text tells of the threads that are at one place; the arguments are the first one's.
func (t thread) text(ids []string, arguments string) string {
	const shown = 4
	who := "thread " + ids[0]
	if len(ids) > 1 {
		arguments = "..."
		who = fmt.Sprintf("%d threads (%s", len(ids), strings.Join(ids[:min(shown, len(ids))], ", "))
		if len(ids) > shown {
			who += ", ..."
		}
		who += ")"
	}
	line := fmt.Sprintf("  %s, %q: %s", who, t.name, t.state)
	if t.call != "" {
		line += fmt.Sprintf(", in %s(%s)", t.call, arguments)
	}
	if t.waits != "" {
		line += ", waits in " + t.waits
	}
	line += "\n"
	for function := range strings.Lines(t.stack) {
		line += "    " + strings.TrimPrefix(strings.TrimRight(function, "\n"), "[<0>] ") + "\n"
	}
	return line
}

// parseCall reads /proc/PID/syscall: the number of a system call, its six arguments, and two addresses (proc(5)). "": there is none.
func parseCall(line string) (name, arguments string) {
	fields := strings.Fields(line)
	if len(fields) != 9 {
		return "", "" // "running", or blocked elsewhere
	}
	number, err := strconv.Atoi(fields[0])
	if err != nil || number < 0 {
		return "", ""
	}
	return cmp.Or(callNames[number], olderCalls[number], "system call "+fields[0]), strings.Join(fields[1:4], ", ")
}

func readFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	return strings.ToValidUTF8(strings.TrimRight(string(text), "\n"), "?"), err
}

// callNames are the system calls that a process may wait in for long. Their numbers are the processor's.
var callNames = map[int]string{
	unix.SYS_FUTEX: "futex", unix.SYS_NANOSLEEP: "nanosleep", unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep",
	unix.SYS_READ: "read", unix.SYS_READV: "readv", unix.SYS_PREAD64: "pread64", unix.SYS_WRITE: "write", unix.SYS_WRITEV: "writev", unix.SYS_PWRITE64: "pwrite64",
	unix.SYS_OPENAT: "openat", unix.SYS_CLOSE: "close", unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_GETDENTS64: "getdents64",
	unix.SYS_FLOCK: "flock", unix.SYS_FCNTL: "fcntl", unix.SYS_IOCTL: "ioctl", unix.SYS_MMAP: "mmap", unix.SYS_MUNMAP: "munmap",
	unix.SYS_EPOLL_PWAIT: "epoll_pwait", unix.SYS_PPOLL: "ppoll", unix.SYS_PSELECT6: "pselect6", unix.SYS_IO_URING_ENTER: "io_uring_enter",
	unix.SYS_CONNECT: "connect", unix.SYS_ACCEPT4: "accept4", unix.SYS_RECVFROM: "recvfrom", unix.SYS_RECVMSG: "recvmsg", unix.SYS_SENDTO: "sendto", unix.SYS_SENDMSG: "sendmsg",
	unix.SYS_WAIT4: "wait4", unix.SYS_WAITID: "waitid", unix.SYS_RT_SIGSUSPEND: "rt_sigsuspend", unix.SYS_RT_SIGTIMEDWAIT: "rt_sigtimedwait",
	unix.SYS_EXECVE: "execve", unix.SYS_EXIT_GROUP: "exit_group",
}
