package watch

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/mpi/launch/stack"
)

// askPython asks the Python programs among the processes for their stacks, children before their parents. All of them are stopped
// before the first is asked, and each stays stopped until it has answered itself: if a data loader's process ended, its running
// parent would raise an exception.
func (d Dumper) askPython(ctx context.Context, relatives []proc.Relative, emit func(finding)) {
	var asked []proc.Relative
	for _, r := range relatives {
		if !isPython(r.PID) {
			continue
		}
		if handles, err := proc.Handles(r.PID, syscall.SIGABRT); err != nil || !handles {
			emit(finding{text: fmt.Sprintf("process %d is Python, and cannot be asked for its stacks without a faulthandler "+
				"(set PYTHONFAULTHANDLER=1 in its environment, or call faulthandler.enable() in the program)\n", r.PID)})
			continue
		}
		if err := proc.ForbidCore(r.PID); err != nil {
			emit(finding{text: fmt.Sprintf("process %d is Python, and is not asked for its stacks: %v\n", r.PID, err)})
			continue
		}
		asked = append(asked, r)
	}
	for _, r := range asked {
		_ = r.Signal(syscall.SIGSTOP) // a process that has ended, or has changed its user, does not answer either
	}
	if d.Together != nil {
		d.Together(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	for _, r := range slices.Backward(asked) {
		if r.State == 'D' {
			_ = r.SignalMain(syscall.SIGABRT)
			_ = r.Signal(syscall.SIGCONT)
			emit(finding{text: fmt.Sprintf("process %d is Python, and cannot be asked for its stacks: no signal reaches it\n", r.PID)})
			continue
		}
		text := d.ask(ctx, r, syscall.SIGABRT)
		threads := stack.Python(text)
		if len(threads) == 0 {
			emit(finding{text: fmt.Sprintf("process %d is Python, and was asked for its stacks, but has not written any\n", r.PID)})
			continue
		}
		emit(finding{fmt.Sprintf("Python stacks of process %d, which ended it:\n%s\n", r.PID, indent(cut(text))),
			stack.Process{PID: r.PID, Parent: r.Parent, Threads: threads}})
	}
}

// askGo asks the Go programs among the processes for their goroutines.
func (d Dumper) askGo(ctx context.Context, relatives []proc.Relative, emit func(finding)) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	for _, r := range relatives {
		isGo, err := proc.IsGo(r.PID)
		switch {
		case err != nil || !isGo:
			continue
		case stopped(r.State):
			emit(finding{text: fmt.Sprintf("process %d is written in Go, but cannot be asked for its goroutines, because it is stopped\n",
				r.PID)})
			continue
		}
		text := d.ask(ctx, r, syscall.SIGQUIT)
		said := fmt.Sprintf("process %d is written in Go: its goroutines are in its own standard error\n", r.PID)
		if !r.Gone() {
			said += fmt.Sprintf("process %d has not written its goroutines in time\n", r.PID)
		}
		emit(finding{said, stack.Process{PID: r.PID, Parent: r.Parent, Go: true, Threads: stack.Go(text)}})
	}
}

// ask sends a process a signal that makes it write its stacks and end. It waits for that end, and returns what was written
// meanwhile. A stopped process is continued, and gets the signal before it does anything else.
func (d Dumper) ask(ctx context.Context, r proc.Relative, sig syscall.Signal) string {
	d.written() // discards what others have written
	_ = r.SignalMain(sig)
	_ = r.Signal(syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(ctx, oneLimit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !r.Gone() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return d.written()
		}
	}
	return d.written()
}

func (d Dumper) written() string {
	if d.Written == nil {
		return ""
	}
	return d.Written()
}

// cut is the beginning of a process's output, as much as is kept.
func cut(text string) string { return text[:min(len(text), maxPySpy)] }
