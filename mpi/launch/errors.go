package launch

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"ddpbatch/internal/rundir"
)

// ErrTimeout: not all agents of the run came in time.
var ErrTimeout = errors.New("the time for all agents to meet is over")

// LostError: the connection to another agent ended before the run did.
type LostError struct {
	Agent int
	Host  string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("agent %d on %s was lost: its connection ended", e.Agent, e.Host)
}

// Causes of a verdict (DESIGN §5).
const (
	causeDone      = "done"
	causeCrash     = "crash"      // a worker exited with another code than 0
	causeSignal    = "signal"     // a worker was killed by a signal
	causeCancelled = "cancelled"  // an agent was told to stop
	causeLost      = "agent-lost" // an agent went away
	causeStart     = "start"      // the agents did not meet, or a worker could not be started
	causeStopped   = "stopped"    // the workers agreed to stop and asked to be started again
	causeTimeout   = "timeout"    // not all agents came in time, or the caller's deadline passed
)

// Exit codes with a meaning of their own (DESIGN §6).
const (
	exitFailed        = 1
	exitRequeue       = 75 // EX_TEMPFAIL of sysexits.h
	exitNoRequeue     = 93
	exitTimeout       = 124 // as timeout(1)
	exitNotExecutable = 126 // as sh(1)
	exitNotFound      = 127 // as sh(1)
	exitSignal        = 128 // plus the signal's number, as sh(1)
)

// refusal is an error that travels between agents.
type refusal struct {
	Cause   string `json:"cause"`
	Exit    int    `json:"exit"`
	Signal  int    `json:"signal,omitempty"`
	Message string `json:"message"`
}

func (r *refusal) Error() string { return r.Message }

// refusalOf classifies why the agents did not meet.
func refusalOf(err error) *refusal {
	var (
		known *refusal
		lost  *LostError
		told  SignalError
	)
	r := &refusal{Cause: causeStart, Exit: exitFailed, Message: err.Error()}
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &told):
		r.Cause, r.Signal, r.Exit = causeCancelled, int(told.Sig), exitSignal+int(told.Sig)
	case errors.Is(err, context.Canceled):
		r.Cause, r.Signal, r.Exit = causeCancelled, int(syscall.SIGTERM), exitSignal+int(syscall.SIGTERM)
	case errors.Is(err, ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		r.Cause, r.Exit = causeTimeout, exitTimeout
	case errors.As(err, &lost):
		r.Cause = causeLost
	case errors.Is(err, rundir.ErrSuperseded):
		r.Exit = exitNoRequeue
	}
	return r
}
