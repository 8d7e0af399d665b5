package watch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/mpi/launch/stack"
)

const (
	dumpLimit    = 15 * time.Second // for all of one Dump
	pySpyLimit   = 5 * time.Second  // for one process
	askLimit     = 4 * time.Second  // for all programs of one language to write their stacks
	oneLimit     = 2 * time.Second  // for one program
	maxProcesses = 32
	maxText      = 256 << 10 // the most bytes that one Dump writes
)

// Dumper writes down where the threads of a worker are.
type Dumper struct {
	PySpy string // the program's path; "": not installed

	// Written returns what the worker's processes have written to its output since its last call. It may be nil.
	Written func() string

	// Together is called once before any process is asked for its stacks, when the Python programs among them have been stopped. It
	// returns when those of other workers have been stopped, too: they would go on once this worker has ended. It is nil if there
	// are no other workers.
	Together func(ctx context.Context)
}

// Dump writes what every thread of a worker and of its descendants is doing, as far as this user may know: where in the kernel it
// waits and, for Python, what py-spy shows. Then it asks for their stacks the programs that can write them, which ends these
// programs: the worker is to be killed after this. Python's faulthandler, if the program enables it (PYTHONFAULTHANDLER), answers
// SIGABRT, and Go programs answer SIGQUIT, both on their standard error. Dump returns the stacks that it finds in what Written
// returns. It takes up to 15 s and writes up to 256 KiB. pid is a child of this process that has not been waited for. The error is
// w's.
//
// A goroutine is left behind for as long as the kernel does not answer it.
func (d Dumper) Dump(ctx context.Context, pid int, w io.Writer) (found []stack.Process, err error) {
	ctx, cancel := context.WithTimeout(ctx, dumpLimit)
	defer cancel()
	findings := make(chan finding)
	go func() {
		defer close(findings)
		d.describe(ctx, pid, func(f finding) {
			select {
			case findings <- f:
			case <-ctx.Done():
			}
		})
	}()
	for left := maxText; ; {
		select {
		case f, ok := <-findings:
			if !ok {
				return found, nil
			}
			if len(f.process.Threads) > 0 {
				found = append(found, f.process)
			}
			if left <= 0 || f.text == "" {
				continue
			}
			if len(f.text) > left {
				f.text = f.text[:left] + "\n(the rest is left out)\n"
			}
			if _, err := io.WriteString(w, f.text); err != nil {
				return found, err
			}
			left -= len(f.text)
		case <-ctx.Done():
			_, err := fmt.Fprintf(w, "(nothing more could be found out: %v)\n", context.Cause(ctx))
			return found, err
		}
	}
}

// finding is one result of Dump: text for a person, or the stacks of one process, or both.
type finding struct {
	text    string
	process stack.Process
}

func (d Dumper) describe(ctx context.Context, pid int, emit func(finding)) {
	say := func(format string, args ...any) { emit(finding{text: fmt.Sprintf(format, args...)}) }
	relatives, err := proc.Relatives(pid)
	if err != nil {
		say("%v\n", err)
		return
	}
	if len(relatives) == 0 {
		say("process %d has ended\n", pid)
		return
	}
	if rest := len(relatives) - maxProcesses; rest > 0 {
		relatives = relatives[:maxProcesses]
		defer say("(%d more processes are left out)\n", rest)
	}
	for _, r := range relatives {
		say("process %d, %q, child of %d: %s\n%s", r.PID, r.Name, r.Parent, stateText(r.State), threadsText(r.PID))
	}
	for _, r := range relatives {
		if d.PySpy != "" && ctx.Err() == nil && isPython(r.PID) {
			say("%s", d.pySpy(ctx, r.PID))
		}
	}
	d.askPython(ctx, relatives, emit)
	d.askGo(ctx, relatives, emit)
}

// isPython reports whether a process runs the Python interpreter. It does not use the process's name, which PyTorch changes.
func isPython(pid int) bool {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.HasPrefix(filepath.Base(path), "python")
}

// stateText describes a state, given the kernel's letter for it (proc(5)).
func stateText(state byte) string {
	switch state {
	case 'R':
		return "running"
	case 'S':
		return "waiting"
	case 'D':
		return "waiting for a disk, a file server or a device; no signal reaches it until that answers"
	case 'T':
		return "stopped by a signal (SIGSTOP, or another of its kind); it does nothing until SIGCONT"
	case 't':
		return "stopped by a debugger"
	case 'Z':
		return "its first thread has ended"
	case 'I':
		return "idle"
	}
	return fmt.Sprintf("in state %q", state)
}

func stopped(state byte) bool { return state == 'T' || state == 't' }

const maxPySpy = 64 << 10 // bytes that are kept of what it writes

// pySpy is the output of py-spy for a process, or why there is none.
func (d Dumper) pySpy(ctx context.Context, pid int) string {
	ctx, cancel := context.WithTimeout(ctx, pySpyLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.PySpy, "dump", "--pid", strconv.Itoa(pid))
	var out capped
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // for processes that it may have started
	err := cmd.Run()
	text := strings.TrimRight(out.String(), "\n")
	switch {
	case ctx.Err() != nil:
		text += fmt.Sprintf("\npy-spy did not end within %v", pySpyLimit)
	case err != nil:
		text += fmt.Sprintf("\npy-spy: %v", err)
	}
	return fmt.Sprintf("Python stacks of process %d:\n%s\n", pid, indent(strings.TrimLeft(text, "\n")))
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// capped keeps the beginning of what is written to it.
type capped struct {
	kept bytes.Buffer // not embedded: io.Copy would bypass Write and use ReadFrom
}

func (c *capped) String() string { return c.kept.String() }

func (c *capped) Write(p []byte) (int, error) {
	if room := maxPySpy - c.kept.Len(); room > 0 {
		c.kept.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
