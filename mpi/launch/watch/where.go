package watch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/internal/proc"
)

// Condition is where a worker is held up, as far as the kernel tells: evidence of who waits, and of who is waited for.
type Condition struct {
	Stopped bool   `json:"stopped,omitempty"` // by SIGSTOP or a debugger
	Held    bool   `json:"held,omitempty"`    // by a disk, a file server or a device, which no signal ends
	Sleeps  bool   `json:"sleeps,omitempty"`  // until some time has passed
	File    string `json:"file,omitempty"`    // that its system call is about; "": none, or not known
	Text    string `json:"text"`              // for people: "in futex"
}

// Where finds where the first thread of a child is that leads its group, or, where it is a shell that waits for its only child, where that
// one's is. If any other thread of the child or of its descendants is held by a disk, a file server or a device, it finds that one.
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
		c := t.condition()
		if !c.Stopped && !c.Held {
			if held, found := heldBelow(relatives, r.PID); found {
				return held
			}
		}
		return c
	}
}

// heldBelow finds a thread that is held, of one of a child's processes. main is the one whose first thread is not.
func heldBelow(relatives []proc.Relative, main int) (c Condition, found bool) {
	for _, r := range relatives[:min(len(relatives), maxProcesses)] {
		for _, id := range threadsOf(r.PID) {
			dir := fmt.Sprintf("/proc/%d/task/%s/", r.PID, id)
			if _, state, err := readState(dir); err != nil || !strings.HasPrefix(state, "D") {
				continue // of a thousand threads, where hardly one is held, the rest need not be read
			}
			t, _, _, err := readThread(dir)
			if err != nil || !strings.HasPrefix(t.state, "D") || t.waitsForChild() {
				continue
			}
			c = t.condition()
			c.Text = fmt.Sprintf("its process %d is %s", r.PID, c.Text)
			if r.PID == main {
				c.Text = "one of its threads is " + t.condition().Text
			}
			return c, true
		}
	}
	return c, false
}

// waitsForChild tells whether the thread waits for the end of a child, or, as shells do, for the signal that tells of it, or for a child to
// begin its program (vfork(2)), in which no signal reaches the parent.
func (t thread) waitsForChild() bool {
	switch t.call {
	case "wait4", "waitid", "rt_sigsuspend", "vfork", "clone", "clone3":
		return true
	}
	return t.waits == "do_wait" || t.waits == "kernel_clone"
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
	p := Condition{Text: "waiting", File: t.file}
	if t.call != "" {
		p.Text = "in " + t.call
	}
	if t.file != "" {
		p.Text += " of " + t.file
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
	file        string // that the call is about; "": none, or not told
	stack       string // the kernel's, a function a line; "": not told
}

// threadsText tells where the threads of a process are, those at the same place together.
func threadsText(pid int) string {
	names := threadsOf(pid)
	if len(names) == 0 {
		return "  it has ended meanwhile\n"
	}
	var places []thread
	at, arguments := map[thread][]string{}, map[thread]string{}
	var denied string
	for _, id := range names {
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

// threadsOf lists the threads of a process; none: it has ended.
func threadsOf(pid int) []string {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxThreads)
	return slices.DeleteFunc(names, func(id string) bool {
		_, err := strconv.Atoi(id)
		return err != nil
	})
}

// readState reads a thread's name, and whether it runs, sleeps, or is held: "D (disk sleep)".
func readState(dir string) (name, state string, err error) {
	status, err := readFile(dir + "status")
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "Name":
			name = strings.TrimSpace(value)
		case "State":
			state = strings.TrimSpace(value)
		}
	}
	return name, state, err
}

// readThread reads what the kernel tells: beside the place, the arguments of the system call. denied says what it does not
// tell this user.
func readThread(dir string) (t thread, arguments, denied string, err error) {
	if t.name, t.state, err = readState(dir); err != nil {
		return thread{}, "", "", err
	}
	if t.waits, err = readFile(dir + "wchan"); err == nil && t.waits == "0" {
		t.waits = ""
	}
	call, callErr := readFile(dir + "syscall")
	t.call, arguments = parseCall(call)
	t.file = fileOf(dir, t.call, arguments)
	var stackErr error
	t.stack, stackErr = readFile(dir + "stack")
	switch {
	case errors.Is(callErr, os.ErrPermission):
		denied = "this user may not know its system calls and its stacks in the kernel: the system allows that to " +
			"debuggers of it alone (ptrace(2))"
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
	if t.file != "" {
		line += ", of " + t.file
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

func readFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	return strings.ToValidUTF8(strings.TrimRight(string(text), "\n"), "?"), err
}
