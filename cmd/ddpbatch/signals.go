package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/torchrun"
	"ddpbatch/mpi/launch"
)

// withSignals returns a context that the first INT, TERM or HUP cancels, with the signal as its cause. If the process was started to ignore
// hang-ups (nohup), they stay ignored. Slurm sends TERM two or three times, so only a second Ctrl-C ends the program at once, with 130.
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
					fmt.Fprintln(w, "ddpbatch: interrupted twice: exiting at once")
					os.Exit(exit.Interrupted)
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

// samePress is the time within which several INTs count as one: timeout(1) signals its child and then the whole group, and wrappers pass on
// what the terminal has already sent.
const samePress = 250 * time.Millisecond

// keyPresses counts Ctrl-C.
type keyPresses struct{ first time.Time }

// again records an INT, and reports whether it is a second one.
func (k *keyPresses) again(now time.Time) bool {
	if k.first.IsZero() {
		k.first = now
	}
	return now.Sub(k.first) > samePress
}

// tolerateClosedPipes makes a write to a closed pipe an error on stdout and stderr too, as it is elsewhere: a run should not end because
// nobody reads its output any more. (The workers would inherit signal.Ignore.)
func tolerateClosedPipes() (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGPIPE)
	return func() { signal.Stop(signals) }
}

// stopSignals stop a run by default, as under torchrun; see --signals-to-handle.
var stopSignals = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}

// signalPlan says what each signal means to an agent. Other signals keep the system's default effect, except for USR1.
type signalPlan struct {
	stop []syscall.Signal
	warn syscall.Signal // 0: none
}

// signalPlanOf returns the plan for the options: a signal that --signals-to-handle names stops the run, even the one that otherwise warns
// it. If this process was started to ignore hang-ups (nohup), they stay ignored unless HUP is named.
func signalPlanOf(o *torchrun.Options, warn syscall.Signal) signalPlan {
	p := signalPlan{stop: stopSignals, warn: warn}
	if o.Has("signals-to-handle") {
		p.stop = o.Signals
		if slices.Contains(p.stop, warn) {
			p.warn = 0
		}
		return p
	}
	p.stop = slices.DeleteFunc(slices.Clone(p.stop), func(sig syscall.Signal) bool {
		return sig == warn || sig == syscall.SIGHUP && signal.Ignored(sig)
	})
	return p
}

// listen begins to handle signals according to p. The first signal that stops the run ends the context, with a launch.SignalError as its
// cause. warned receives a value for each warning. Where p differs from what main does about INT, TERM and HUP, that is changed until the
// process ends. If main has ended parent because of a signal that is a warning in p, it counts as a warning.
func (p signalPlan) listen(parent context.Context, note func(format string, args ...any)) (ctx context.Context,
	warned <-chan struct{}, end func()) {
	signals := make(chan os.Signal, 8)
	for _, sig := range stopSignals {
		// main has requested some of them, and only a reset undoes that
		if !slices.Contains(p.stop, sig) && !signal.Ignored(sig) {
			signal.Reset(sig)
		}
	}
	for _, sig := range append(slices.Clone(p.stop), p.warn, syscall.SIGUSR1) {
		if sig != 0 {
			signal.Notify(signals, sig)
		}
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	warnings := make(chan struct{}, 1)
	warnNow := func() {
		select {
		case warnings <- struct{}{}:
		default: // an unread warning says the same
		}
	}
	leave := context.AfterFunc(parent, func() {
		if cause := context.Cause(parent); errors.Is(cause, launch.SignalError{Sig: p.warn}) {
			warnNow()
		} else {
			cancel(cause)
		}
	})
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case s := <-signals:
				sig := s.(syscall.Signal)
				switch {
				case slices.Contains(p.stop, sig):
					cancel(launch.SignalError{Sig: sig})
				case sig == p.warn:
					warnNow()
				default:
					note("USR1 has no effect (--signals-to-handle SIGUSR1,... makes it stop the run)")
				}
			case <-done:
				return
			}
		}
	}()
	return ctx, warnings, func() {
		leave()
		signal.Stop(signals)
		close(done)
		<-ended
		cancel(nil)
	}
}

// holdSignals keeps a warning from being lost before an agent knows what each signal means, because it first reads files on a shared file
// system. Go ignores USR1 and USR2 unless they are requested; for those that main requests, see listen. release delivers the signals that
// arrived meanwhile; it is nil for other commands.
func holdSignals(args []string) (release func()) {
	if len(args) < 2 || args[1] != "run" {
		return nil
	}
	held := make(chan os.Signal, 8)
	signal.Notify(held, syscall.SIGUSR1, syscall.SIGUSR2)
	return func() {
		signal.Stop(held)
		for {
			select {
			case s := <-held:
				syscall.Kill(os.Getpid(), s.(syscall.Signal)) // as if it arrived now
			default:
				return
			}
		}
	}
}
