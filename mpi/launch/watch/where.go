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

// Condition is where a worker waits, as far as the kernel shows: evidence of which worker waits for which.
type Condition struct {
	Stopped bool   `json:"stopped,omitempty"` // by SIGSTOP or a debugger
	Held    bool   `json:"held,omitempty"`    // by a disk, a file server or a device, which no signal ends
	Sleeps  bool   `json:"sleeps,omitempty"`  // until some time has passed
	File    string `json:"file,omitempty"`    // the file that its system call uses; "": none, or not known
	Text    string `json:"text"`              // for people: "in futex"
}

// Where returns the condition of the first thread of a child that leads its group. If the child is a shell that waits for its only
// child, it returns that child's condition. If any other thread of the child or of its descendants is held by a disk, a file server
// or a device, it returns that thread's.
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

// heldBelow finds a thread of one of the processes that is held. main is the process whose first thread is not.
func heldBelow(relatives []proc.Relative, main int) (c Condition, found bool) {
	for _, r := range relatives[:min(len(relatives), maxProcesses)] {
		for _, id := range threadsOf(r.PID) {
			dir := fmt.Sprintf("/proc/%d/task/%s/", r.PID, id)
			if _, state, err := readState(dir); err != nil || !strings.HasPrefix(state, "D") {
				continue // hardly any of a thousand threads is held, so the rest is not read
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

// waitsForChild reports whether the thread waits for the end of a child, or for the signal that announces it, as shells do, or for
// a child to start its program (vfork(2)), during which no signal reaches the parent.
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
	maxFile    = 16 << 10 // bytes that are read of a file of one thread
)

// thread is where one thread is. The threads of a pool are often at the same place.
type thread struct {
	name, state string
	waits       string // the kernel function in which it waits; "": none, or not known
	call        string // its system call; "": none, or not known
	file        string // the file that the call uses; "": none, or not known
	stack       string // the kernel's stack, a function a line; "": not known
}

// threadsText describes where the threads of a process are, those at the same place together.
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

// threadsOf lists the threads of a process. It returns none if the process has ended.
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

// readState reads a thread's name, and its state: "D (disk sleep)".
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

// readThread reads what the kernel shows of a thread, and the arguments of its system call. denied says what the kernel does not
// show this user.
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
		denied = "this user may not see its system calls and its kernel stacks: the system shows these only to " +
			"processes that may debug it (ptrace(2))"
	case errors.Is(stackErr, os.ErrPermission):
		denied = "only root may see its kernel stacks"
	}
	return t, arguments, denied, nil
}

// text describes the threads that are at one place. The arguments are those of the first one.
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
