package engine

import (
	"errors"
	"fmt"

	"ddpbatch/mpi/transport"
)

var (
	// ErrMismatch: two ranks made different calls. The error is a MismatchError on the rank
	// that saw it, an AbortError elsewhere.
	ErrMismatch = errors.New("calls differ")

	// ErrTimeout: a rank that was waited for made no progress.
	ErrTimeout = errors.New("no progress")

	// ErrLost: the connection to a rank ended without a goodbye; its process died,
	// or its host or the network failed.
	ErrLost = errors.New("connection lost")

	// ErrLeft: a rank that was needed had left the group.
	ErrLeft = errors.New("it has left the group")

	// ErrAborted: another rank gave up, for a reason of its own (its
	// context ended, say).
	ErrAborted = errors.New("stopped by another rank")

	// ErrProtocol: a rank sent what no rank of this version sends.
	ErrProtocol = transport.ErrProtocol

	// ErrTruncated: a message was longer than the buffer that it was received into.
	ErrTruncated = errors.New("message longer than the buffer")

	// ErrClosed: the group was closed by this process.
	ErrClosed = errors.New("communicator is closed")
)

// PeerError is a failure of, or while waiting for, one rank of a group.
type PeerError struct {
	Rank int
	Err  error
}

func (e *PeerError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

// Unwrap returns Err.
func (e *PeerError) Unwrap() error { return e.Err }

// MismatchError says that this rank (Here) and another (There) made different
// calls. The calls are as Options.Describe words them.
type MismatchError struct {
	Here, There         int
	HereCall, ThereCall string
}

// Mismatch makes the error of the rank here that has called one thing, where the rank there has called another: in the words of
// describe, or, where these are the same, of fully.
func Mismatch(here, there int, hereCall, thereCall Call, describe, fully func(Call) string) *MismatchError {
	e := &MismatchError{Here: here, There: there, HereCall: describe(hereCall), ThereCall: describe(thereCall)}
	if e.HereCall == e.ThereCall {
		e.HereCall, e.ThereCall = fully(hereCall), fully(thereCall)
	}
	return e
}

// MismatchOfLengths makes the error of the rank here that is due a block from the rank there, which has sent one of another length in the
// same call. Both lengths are in bytes.
func MismatchOfLengths(here, there int, call Call, due, sent uint64, describe func(Call) string) *MismatchError {
	text := describe(call)
	return &MismatchError{
		Here: here, There: there,
		HereCall:  fmt.Sprintf("%s, with %d bytes due from rank %d", text, due, there),
		ThereCall: fmt.Sprintf("%s, with %d bytes for rank %d", text, sent, here),
	}
}

// Error names the lower rank first, so that both sides say the same.
func (e *MismatchError) Error() string {
	a, b := e.Here, e.There
	callA, callB := e.HereCall, e.ThereCall
	if a > b {
		a, b, callA, callB = b, a, callB, callA
	}
	return fmt.Sprintf("%v: rank %d called %s, rank %d called %s", ErrMismatch, a, callA, b, callB)
}

// Unwrap makes errors.Is find ErrMismatch.
func (e *MismatchError) Unwrap() error { return ErrMismatch }

// AbortError is the failure of another rank, as that rank told it.
type AbortError struct {
	By     int    // the rank that found the failure
	Rank   int    // the rank that it was about
	Reason error  // ErrMismatch, ErrTimeout, ErrLost, ErrLeft, ErrProtocol or ErrAborted
	Text   string // in the words of By
}

func (e *AbortError) Error() string { return fmt.Sprintf("rank %d gave up: %s", e.By, e.Text) }

// Unwrap returns Reason.
func (e *AbortError) Unwrap() error { return e.Reason }

// reasons are numbered on the wire by their position here.
var reasons = [...]error{ErrAborted, ErrMismatch, ErrTimeout, ErrLost, ErrLeft, ErrProtocol, ErrTruncated}

// newAbort is what rank self tells the others when it fails with err, in the
// words of text. What another rank found is passed on as it is, so that all ranks
// name the same one.
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
	case a.Reason == ErrAborted: // not the fault of the rank that was waited for
	case errors.As(err, &at):
		a.Rank = at.Rank
	case errors.As(err, &diff):
		a.Rank = diff.There
	}
	return a
}
