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

// LostError: another agent went away, or fell silent, before the run ended.
type LostError struct {
	Agent int
	Host  string
	Why   string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("agent %d on %s was lost: %s", e.Agent, e.Host, e.Why)
}

// connectionEnded is the most frequent reason for a loss.
const connectionEnded = "its connection ended"

// overError: this agent came too late to have a part in the run, which ended so.
type overError struct{ last rundir.Verdict }

func (e *overError) Error() string { return "the run is over: " + e.last.Message }

// Causes of a verdict (docs/concepts/recovery.md).
const (
	causeDone      = "done"
	causeCrash     = "crash"     // a worker exited with another code than 0, or was killed by a signal
	causeHang      = "hang"      // the workers did not get on
	causeOOM       = "oom"       // memory ran out
	causeCancelled = "cancelled" // an agent was told to stop
	causeNode      = "node"      // an agent, and perhaps its node, went away
	causeStart     = "start"     // the agents did not meet, or a worker could not be started
	causeStopped   = "stopped"   // the workers agreed to stop and asked to be started again
	causeTimeout   = "timeout"   // not all agents came in time, or the caller's deadline passed
)

// Exit codes with a meaning of their own (docs/cli.md).
const (
	exitFailed        = 1
	exitUsage         = 2
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
		unmet *unmetError
		told  SignalError
	)
	r := &refusal{Cause: causeStart, Exit: exitFailed, Message: err.Error()}
	if errors.As(err, &unmet) {
		r.Message = unmet.err.Error()
	}
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
		r.Cause = causeNode
	case errors.Is(err, rundir.ErrSuperseded):
		r.Exit = exitNoRequeue
	}
	return r
}
