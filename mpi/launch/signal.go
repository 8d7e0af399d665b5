package launch

import (
	"context"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// SignalError is the cause with which the caller cancels Run's context
// (context.WithCancelCause) when the agent got a signal that means stop.
type SignalError struct{ Sig syscall.Signal }

func (e SignalError) Error() string { return "told to stop by " + signalName(e.Sig) }

// signalName is SIGTERM for 15, and the number where there is no name.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return s.String()
}

// stopSignal is the signal that an ended context stands for: TERM where the
// cause does not say.
func stopSignal(ctx context.Context) syscall.Signal {
	var told SignalError
	if errors.As(context.Cause(ctx), &told) {
		return told.Sig
	}
	return syscall.SIGTERM
}
