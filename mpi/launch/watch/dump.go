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
	"syscall"
	"time"

	"ddpbatch/internal/proc"
)

const (
	dumpLimit    = 15 * time.Second // for all of one Dump
	pySpyLimit   = 5 * time.Second  // for one process
	quitLimit    = 3 * time.Second  // for Go programs to write their goroutines
	maxProcesses = 32
	maxText      = 256 << 10 // bytes that one Dump writes
)

// Dumper writes down where the threads of workers are.
type Dumper struct {
	PySpy string // the program's path; "": there is none
}

// Dump writes what every thread of a worker and of its descendants is doing, as far as this user may know: where in the kernel it
// waits, and for Python what py-spy tells. Programs written in Go are asked to write their goroutines to their standard error, with SIGQUIT,
// which ends them: the worker is to be killed after this. It takes up to 15 s and
// writes up to 256 KiB. pid is a child of this process that has not been waited for. The error is w's.
//
// A goroutine is left behind for as long as the kernel does not answer.
func (d Dumper) Dump(ctx context.Context, pid int, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, dumpLimit)
	defer cancel()
	texts := make(chan string)
	go func() {
		defer close(texts)
		d.describe(ctx, pid, func(text string) {
			select {
			case texts <- text:
			case <-ctx.Done():
			}
		})
	}()
	for left := maxText; ; {
		select {
		case text, ok := <-texts:
			if !ok {
				return nil
			}
			if len(text) > left {
				text = text[:left] + "\n(the rest is left out)\n"
			}
			if _, err := io.WriteString(w, text); err != nil {
				return err
			}
			if left -= len(text); left <= 0 {
				return nil
			}
		case <-ctx.Done():
			_, err := fmt.Fprintf(w, "(no more could be found out in time: %v)\n", context.Cause(ctx))
			return err
		}
	}
}

func (d Dumper) describe(ctx context.Context, pid int, emit func(string)) {
	relatives, err := proc.Relatives(pid)
	if err != nil {
		emit(err.Error() + "\n")
		return
	}
	if len(relatives) == 0 {
		emit(fmt.Sprintf("process %d has ended\n", pid))
		return
	}
	if rest := len(relatives) - maxProcesses; rest > 0 {
		relatives = relatives[:maxProcesses]
		defer emit(fmt.Sprintf("(%d more processes are left out)\n", rest))
	}
	for _, r := range relatives {
		emit(fmt.Sprintf("process %d, %q, child of %d: %s\n", r.PID, r.Name, r.Parent, stateText(r.State)))
		emit(threadsText(r.PID))
	}
	for _, r := range relatives {
		if d.PySpy != "" && ctx.Err() == nil && isPython(r.PID) {
			emit(d.pySpy(ctx, r.PID))
		}
	}
	quit(ctx, relatives, emit)
}

// quit asks the Go programs among the processes for their goroutines, and waits for them to end.
func quit(ctx context.Context, relatives []proc.Relative, emit func(string)) {
	ctx, cancel := context.WithTimeout(ctx, quitLimit)
	defer cancel()
	var asked []proc.Relative
	for _, r := range relatives {
		isGo, err := proc.IsGo(r.PID)
		switch {
		case err != nil || !isGo:
			continue
		case stopped(r.State):
			emit(fmt.Sprintf("process %d is written in Go, but cannot be asked for its goroutines, as it is stopped\n", r.PID))
			continue
		}
		if err := r.Signal(syscall.SIGQUIT); err != nil {
			emit(err.Error() + "\n")
			continue
		}
		emit(fmt.Sprintf("process %d is written in Go: its goroutines are in its own standard error\n", r.PID))
		asked = append(asked, r)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for _, r := range asked {
		for !r.Gone() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				emit(fmt.Sprintf("process %d has not written its goroutines within %v\n", r.PID, quitLimit))
				return
			}
		}
	}
}

// isPython tells whether a process runs the Python interpreter. Its name is of no use: PyTorch changes it.
func isPython(pid int) bool {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.HasPrefix(filepath.Base(path), "python")
}

// stateText is what the kernel's letter for a state means (proc(5)).
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

// pySpy is what py-spy says of a process, or why it says nothing.
func (d Dumper) pySpy(ctx context.Context, pid int) string {
	ctx, cancel := context.WithTimeout(ctx, pySpyLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.PySpy, "dump", "--pid", strconv.Itoa(pid))
	var out capped
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // for what it may have started
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
	kept bytes.Buffer // not embedded: io.Copy would go round Write, by ReadFrom
}

func (c *capped) String() string { return c.kept.String() }

func (c *capped) Write(p []byte) (int, error) {
	if room := maxPySpy - c.kept.Len(); room > 0 {
		c.kept.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
