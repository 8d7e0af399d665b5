package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"ddpbatch/mpi/launch"
)

// withSignals returns a context that the first INT, TERM or HUP cancels, with the
// signal as its cause. A hang-up that the process was started to ignore (nohup) stays ignored. Slurm sends TERM two or three times, so only a second Ctrl-C means now: the program then
// ends at once with 130.
func withSignals(parent context.Context, w io.Writer) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	done := make(chan struct{})
	go func() {
		var presses keyPresses
		for {
			select {
			case s := <-signals:
				cancel(launch.SignalError{Sig: s.(syscall.Signal)})
				if s == syscall.SIGINT && presses.again(time.Now()) {
					fmt.Fprintln(w, "ddpbatch: interrupted twice: leaving at once")
					os.Exit(exitInterrupted)
				}
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// samePress is the time within which several INTs are one wish: timeout(1) signals its child and then the
// whole group, and wrappers hand on what the terminal has sent already.
const samePress = 250 * time.Millisecond

// keyPresses counts Ctrl-C.
type keyPresses struct{ first time.Time }

// again takes note of an INT, and tells whether it is another one than the first.
func (k *keyPresses) again(now time.Time) bool {
	if k.first.IsZero() {
		k.first = now
	}
	return now.Sub(k.first) > samePress
}

// bearClosedPipes makes a write to a closed pipe an error, as elsewhere, on stdout and stderr too: what nobody
// reads any more is no reason to end a run. (signal.Ignore would be inherited by the workers.)
func bearClosedPipes() (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGPIPE)
	return func() { signal.Stop(signals) }
}
