package rendezvous

import (
	"context"
	"errors"
	"syscall"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/mpi/launch/recovery"
)

// ErrTimeout is returned if not all agents of the run came in time.
var ErrTimeout = errors.New("the time for all agents to meet is over")

// Rejection is an error that travels between agents.
type Rejection struct {
	Cause   string `json:"cause"`
	Exit    int    `json:"exit"`
	Signal  int    `json:"signal,omitempty"`
	Message string `json:"message"`

	Unfit []string `json:"unfit,omitempty"` // nodes that failed a check
}

func (r *Rejection) Error() string { return r.Message }

// RejectionOf classifies the error because of which the agents did not meet.
func RejectionOf(err error) *Rejection {
	var (
		known  *Rejection
		lost   *LostError
		unmet  *NotMetError
		signal SignalError
	)
	r := &Rejection{Cause: string(recovery.Start), Exit: 1, Message: err.Error()}
	if errors.As(err, &unmet) {
		r.Message = unmet.err.Error()
	}
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &signal):
		r.Cause, r.Signal, r.Exit = string(recovery.Cancelled), int(signal.Sig), 128+int(signal.Sig)
	case errors.Is(err, context.Canceled):
		r.Cause, r.Signal, r.Exit = string(recovery.Cancelled), int(syscall.SIGTERM), 128+int(syscall.SIGTERM)
	case errors.Is(err, ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		r.Cause, r.Exit = string(recovery.Timeout), exit.Timeout
	case errors.As(err, &lost):
		r.Cause = string(recovery.Node)
	case errors.Is(err, rundir.ErrSuperseded):
		r.Exit = exit.Never
	}
	return r
}

// OverError means that this agent came too late to take part in the run. Last is how the run ended.
type OverError struct{ Last rundir.Verdict }

func (e *OverError) Error() string { return "the run is over: " + e.Last.Message }

// SignalError is the cause with which the caller cancels Run's context
// (context.WithCancelCause) when the agent got a signal that means stop.
type SignalError struct{ Sig syscall.Signal }

func (e SignalError) Error() string { return "told to stop by " + text.SignalName(e.Sig) }

// signalOfPerson is the signal that ended ctx, if a person must have sent it. TERM does not count: srun sends it to the agents when
// one that rejects has ended. nil: no such signal ended ctx.
func signalOfPerson(ctx context.Context) error {
	if err, ok := errors.AsType[SignalError](context.Cause(ctx)); ok && err.Sig != syscall.SIGTERM {
		return err
	}
	return nil
}
