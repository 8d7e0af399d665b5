package watch

import (
	"context"
	"fmt"
	"io"

	"ddpbatch/internal/proc"
)

// Look writes what Dump writes about a process that leads its group and about its descendants, but sends no signals: they go on
// undisturbed. So Go programs are not asked for their goroutines. py-spy stops a Python program for some milliseconds. Look takes
// up to 15 s and writes up to 256 KiB. The error is w's.
func (d Dumper) Look(ctx context.Context, pid int, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, dumpLimit)
	defer cancel()
	relatives, err := proc.Relatives(pid)
	if err != nil || len(relatives) == 0 {
		_, err := fmt.Fprintf(w, "process %d has ended\n", pid)
		return err
	}
	left := maxText
	say := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if err != nil || left <= 0 {
			return
		}
		if len(text) > left {
			text = text[:left] + "\n(the rest is left out)\n"
		}
		_, err = io.WriteString(w, text)
		left -= len(text)
	}
	python := false
	for _, r := range relatives[:min(maxProcesses, len(relatives))] {
		say("process %d, %q, child of %d: %s\n%s", r.PID, r.Name, r.Parent, stateText(r.State), threadsText(r.PID))
		isPython := isPython(r.PID)
		python = python || isPython
		if d.PySpy != "" && isPython && !stopped(r.State) {
			if ctx.Err() == nil {
				say("%s", d.pySpy(ctx, r.PID))
			} else {
				say("(out of time for the Python stacks of process %d)\n", r.PID)
			}
		}
	}
	if rest := len(relatives) - maxProcesses; rest > 0 {
		say("(%d more processes are left out)\n", rest)
	}
	if python && d.PySpy == "" {
		say("(no Python stacks: py-spy is not in the rank's PATH)\n")
	}
	return err
}
