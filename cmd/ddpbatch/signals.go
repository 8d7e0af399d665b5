package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"ddpbatch/mpi/launch"
)

// withSignals returns a context that the first INT, TERM or HUP cancels, with the
// signal as its cause. Slurm sends TERM two or three times, so only a second INT (Ctrl-C
// pressed twice) means now: the program then ends at once with 130.
func withSignals(parent context.Context, w io.Writer) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		interrupts := 0
		for {
			select {
			case s := <-signals:
				cancel(launch.SignalError{Sig: s.(syscall.Signal)})
				if s == syscall.SIGINT {
					if interrupts++; interrupts == 2 {
						fmt.Fprintln(w, "ddpbatch: interrupted twice: leaving at once")
						os.Exit(exitInterrupted)
					}
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
