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

// withSignals returns a context that the first INT, TERM or HUP cancels, with the
// signal as its cause. A hang-up that the process was started to ignore (nohup) stays ignored. Slurm sends TERM two or three times, so only
// a second Ctrl-C means now: the program then ends at once with 130.
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

// tolerateClosedPipes makes a write to a closed pipe an error, as elsewhere, on stdout and stderr too: what nobody
// reads any more is no reason to end a run. (signal.Ignore would be inherited by the workers.)
func tolerateClosedPipes() (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGPIPE)
	return func() { signal.Stop(signals) }
}

// stopSignals are what stops a run where --signals-to-handle does not say, as under torchrun.
var stopSignals = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}

// signalPlan is what each signal means to an agent. What is in neither has the system's own effect, but for USR1.
type signalPlan struct {
	stop []syscall.Signal
	warn syscall.Signal // 0: none
}

// signalPlanOf: a signal that --signals-to-handle names stops the run, even the one that otherwise warns it. A hang-up that this process
// was started to ignore (nohup) stays ignored unless it is named.
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

// listen begins to hear signals as p has it. The context ends with the first signal that stops (a launch.SignalError is its cause), warned
// receives for each warning. What main does about INT, TERM and HUP is changed as far as p differs, until the process ends; where main has
// ended parent for what is a warning, that was one.
func (p signalPlan) listen(parent context.Context, note func(format string, args ...any)) (ctx context.Context,
	warned <-chan struct{}, end func()) {
	signals := make(chan os.Signal, 8)
	for _, sig := range stopSignals {
		// main has asked for some of them, and only a reset takes that back
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
		default: // one that is not read yet says the same
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
					note("USR1 changes nothing (--signals-to-handle SIGUSR1,... makes it stop the run)")
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

// holdSignals keeps a warning from being lost that comes before an agent knows what each signal means: until then files on a shared file
// system are read. Go takes no note of USR1 and USR2 that nobody asks for; for what main asks for, see listen. release hands on what came
// meanwhile; nil of other commands.
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
				syscall.Kill(os.Getpid(), s.(syscall.Signal)) // as if it came now
			default:
				return
			}
		}
	}
}
