package engine

import (
	"errors"
	"fmt"

	"ddpbatch/mpi/transport"
)

var (
	// ErrMismatch means that two ranks made different calls. The error is a MismatchError on the rank that detected it, and an AbortError
	// on the others.
	ErrMismatch = errors.New("calls differ")

	// ErrTimeout means that a rank for which others waited made no progress.
	ErrTimeout = errors.New("no progress")

	// ErrLost means that the connection to a rank ended without a bye frame: its process died, or its host or the network failed.
	ErrLost = errors.New("connection lost")

	// ErrLeft means that a rank that was needed had left the group.
	ErrLeft = errors.New("it has left the group")

	// ErrAborted means that another rank gave up, for its own reasons, such as the end of its context.
	ErrAborted = errors.New("stopped by another rank")

	// ErrProtocol means that a rank sent something that a rank of this version never sends.
	ErrProtocol = transport.ErrProtocol

	// ErrTruncated means that a message was longer than the receiver's buffer.
	ErrTruncated = errors.New("message longer than the buffer")

	// ErrClosed means that this process has closed the group.
	ErrClosed = errors.New("communicator is closed")
)

// PeerError is a failure of one rank of a group, or while waiting for it.
type PeerError struct {
	Rank int
	Err  error
}

func (e *PeerError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

// Unwrap returns Err.
func (e *PeerError) Unwrap() error { return e.Err }

// MismatchError says that this rank (Here) and another (There) made different calls. HereCall and ThereCall are formatted by
// Options.Describe.
type MismatchError struct {
	Here, There         int
	HereCall, ThereCall string
}

// Mismatch returns the error of rank here, which has made one call, while rank there has made another. describe formats the calls, or fully
// if they read the same with describe.
func Mismatch(here, there int, hereCall, thereCall Call, describe, fully func(Call) string) *MismatchError {
	e := &MismatchError{Here: here, There: there, HereCall: describe(hereCall), ThereCall: describe(thereCall)}
	if e.HereCall == e.ThereCall {
		e.HereCall, e.ThereCall = fully(hereCall), fully(thereCall)
	}
	return e
}

// MismatchOfLengths returns the error of rank here, which expects a block from rank there. Rank there has sent one of another length in the
// same call. Both lengths are in bytes.
func MismatchOfLengths(here, there int, call Call, due, sent uint64, describe func(Call) string) *MismatchError {
	text := describe(call)
	return &MismatchError{
		Here: here, There: there,
		HereCall:  fmt.Sprintf("%s, expecting %d bytes from rank %d", text, due, there),
		ThereCall: fmt.Sprintf("%s, sending %d bytes to rank %d", text, sent, here),
	}
}

// Error names the lower rank first, so that the errors of both ranks read the same.
func (e *MismatchError) Error() string {
	a, b := e.Here, e.There
	callA, callB := e.HereCall, e.ThereCall
	if a > b {
		a, b, callA, callB = b, a, callB, callA
	}
	return fmt.Sprintf("%v: rank %d called %s, rank %d called %s", ErrMismatch, a, callA, b, callB)
}

// Unwrap returns ErrMismatch.
func (e *MismatchError) Unwrap() error { return ErrMismatch }

// AbortError is the failure of another rank, as that rank reported it.
type AbortError struct {
	By     int    // the rank that found the failure
	Rank   int    // the rank that the failure is about
	Reason error  // ErrMismatch, ErrTimeout, ErrLost, ErrLeft, ErrProtocol or ErrAborted
	Text   string // the text of By's error
}

func (e *AbortError) Error() string { return fmt.Sprintf("rank %d gave up: %s", e.By, e.Text) }

// Unwrap returns Reason.
func (e *AbortError) Unwrap() error { return e.Reason }

// reasons are the possible reasons of an AbortError. Their numbers on the wire are their indices.
var reasons = [...]error{ErrAborted, ErrMismatch, ErrTimeout, ErrLost, ErrLeft, ErrProtocol, ErrTruncated}

// newAbort returns what rank self sends to the others when it fails with err, with the given text. If err came from another rank, it is
// sent on unchanged, so that all ranks name the same one.
func newAbort(self int, err error, text string) *AbortError {
	if received, ok := errors.AsType[*AbortError](err); ok {
		return received
	}
	a := &AbortError{By: self, Rank: self, Reason: ErrAborted, Text: text}
	for _, reason := range reasons {
		if errors.Is(err, reason) {
			a.Reason = reason
		}
	}
	var at *PeerError
	var diff *MismatchError
	switch {
	case a.Reason == ErrAborted: // the rank that this one waited for is not at fault
	case errors.As(err, &at):
		a.Rank = at.Rank
	case errors.As(err, &diff):
		a.Rank = diff.There
	}
	return a
}
