package supervise

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/mpi/launch/rendezvous"
)

// Causes of a verdict (docs/concepts/recovery.md).
const (
	causeDone      = string(recovery.Done)
	causeCrash     = string(recovery.Crash)
	causeHang      = string(recovery.Hang)
	causeOOM       = string(recovery.OOM)
	causeCancelled = string(recovery.Cancelled) // an agent was told to stop
	causeNode      = string(recovery.Node)      // an agent, and perhaps its node, went away
	causeStart     = string(recovery.Start)     // a worker could not be started
	causeStopped   = string(recovery.Saved)     // the workers agreed to stop and asked to be started again
	causeTimeout   = string(recovery.Timeout)   // the caller's deadline passed
)

// These exit codes are those of sh(1).
const (
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // plus the signal's number
)

// The outcome of a run is the first verdict that any agent sets it to: a failure, a stop or, when every worker is done, agent 0's
// "done". It is not on disk yet.

func (c Config) Verdict(cause string, code int, message string) rundir.Verdict {
	return rundir.Verdict{
		Attempt: c.Attempt, JobID: c.JobID, Cause: cause, FirstRank: -1,
		Exit: code, Message: message, Time: time.Now().Round(0), // without its monotonic part, which does not travel
	}
}

func (c Config) doneOutcome(world int) rundir.Verdict {
	if world == 1 {
		return c.Verdict(causeDone, 0, "the only rank is done")
	}
	return c.Verdict(causeDone, 0, fmt.Sprintf("all %d ranks are done", world))
}

// exitOutcome returns the verdict of a worker that failed, and false if it did not.
func (c Config) exitOutcome(w *worker) (rundir.Verdict, bool) {
	return c.endOutcome(w.numbers.Rank, w.exit, w.signal, w.lastLog())
}

// endOutcome makes the verdict of a rank on c.Host that failed. It returns false if the rank did not. log is the file with the
// rank's last lines; "": none.
func (c Config) endOutcome(rank, code int, signal syscall.Signal, log string) (rundir.Verdict, bool) {
	var v rundir.Verdict
	who := fmt.Sprintf("rank %d on %s", rank, c.Host)
	switch {
	case signal != 0:
		v = c.Verdict(causeCrash, exitSignal+int(signal), fmt.Sprintf("%s was killed by %s", who, text.SignalName(signal)))
		v.Signal = int(signal)
	case code == exit.Requeue:
		v = c.Verdict(causeStopped, exit.Requeue, fmt.Sprintf("%s stopped and asks to be started again (exit code %d)", who, code))
		v.Requeue, v.Saved = true, true
	case code != 0:
		v = c.Verdict(causeCrash, code, fmt.Sprintf("%s exited with code %d", who, code))
	default:
		return v, false
	}
	v.FirstRank, v.Host = rank, c.Host
	if log != "" && v.Cause != causeStopped {
		v.Message += "; its last words are in " + log
	}
	return v, true
}

// startOutcome is the verdict of a rank that could not be started.
func (c Config) startOutcome(rank int, err error) rundir.Verdict {
	code := exit.Failed
	if start, ok := errors.AsType[*startError](err); ok {
		code = start.exit
	}
	v := c.Verdict(causeStart, code, fmt.Sprintf("rank %d on %s was not started: %v", rank, c.Host, err))
	v.FirstRank, v.Host = rank, c.Host
	return v
}

// interruptedOutcome is the verdict of an agent that was told to stop, by a signal or because the caller's deadline passed.
func (c Config) interruptedOutcome(ctx context.Context) rundir.Verdict {
	var v rundir.Verdict
	if cause := context.Cause(ctx); errors.Is(cause, context.DeadlineExceeded) {
		v = c.Verdict(causeTimeout, exit.Timeout, fmt.Sprintf("the agent on %s stopped the run: its time was over", c.Host))
	} else {
		sig := stopSignal(ctx)
		v = c.Verdict(causeCancelled, exitSignal+int(sig),
			fmt.Sprintf("the agent on %s was told to stop by %s", c.Host, text.SignalName(sig)))
		v.Signal = int(sig)
	}
	v.Host = c.Host
	return v
}

// lostOutcome is the verdict after the loss of another agent.
func (c Config) lostOutcome(lost *rendezvous.LostError) rundir.Verdict {
	v := c.Verdict(causeNode, exit.Failed, lost.Error())
	v.Host, v.Nodes = lost.Host, []string{lost.Host}
	return v
}

// mayBeSignalled reports whether a worker ended as one does after a signal to stop. Slurm may send the signal to every process of
// the step (reference: proctrack plugins, cgroup.conf's SignalChildrenProcesses), and a terminal sends it to its whole foreground.
// So the agent may notice the worker's end before its own signal.
func mayBeSignalled(v rundir.Verdict) bool {
	switch syscall.Signal(v.Exit - exitSignal) {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return v.Cause == causeStopped
}

// stopSignal is the signal that ended a context, or TERM if its cause is not a signal.
func stopSignal(ctx context.Context) syscall.Signal {
	if signal, ok := errors.AsType[rendezvous.SignalError](context.Cause(ctx)); ok {
		return signal.Sig
	}
	return syscall.SIGTERM
}
