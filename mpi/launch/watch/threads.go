package watch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

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
