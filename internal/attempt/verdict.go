package attempt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
)

// causeUnknown is the cause in a verdict that no agent left.
const causeUnknown = string(recovery.Unknown)

// end returns the attempt's verdict: agent 0's own or, if no agent wrote one, a verdict made from
// srun's exit code.
func (a *Attempt) end(code int) (rundir.Verdict, error) {
	v, found, err := a.readVerdict(code)
	switch {
	case err != nil:
		return v, err
	case found && a.unread:
		return v, nil
	case found:
		return v, a.Run.FinalizeOverride(v.Exit != exit.Mismatch)
	}
	a.Silent = true
	v = a.withStep(a.verdictOfCode(code))
	return v, a.Record(v)
}

// readVerdict reads the agents' own verdict of the attempt; ok is false if they left none. A verdict that exists but cannot be read may be
// good, and is never overwritten: readVerdict then makes one from the ledger, with code as the exit code.
func (a *Attempt) readVerdict(code int) (v rundir.Verdict, ok bool, err error) {
	v, err = a.Run.Verdict(a.Number)
	switch {
	case err == nil:
		return v, true, nil
	case errors.Is(err, fs.ErrNotExist), errors.As(err, new(*json.SyntaxError)): // truncated by a crash
		return v, false, nil
	}
	a.unread = true
	a.Env.Log.Warn("cannot read the attempt's verdict; leaving it as it is, and using the run's ledger instead", "error", err)
	history, err := a.Run.Ledger()
	for _, event := range slices.Backward(history) {
		if event.Event == rundir.EventEnd && event.Attempt == a.Number {
			return a.verdictOfEvent(event, code), true, nil
		}
	}
	return v, false, err
}

// verdictOfEvent returns the verdict from which an end in the ledger was made, as far as the event contains it.
func (a *Attempt) verdictOfEvent(end rundir.Event, code int) rundir.Verdict {
	return rundir.Verdict{
		Attempt: a.Number, JobID: a.JobID, Cause: end.Cause, FirstRank: -1, Host: end.Node, Nodes: end.Nodes,
		Drain: end.Drain, Unfit: end.Unfit,
		Step: end.Step, Saved: end.Saved,
		Signal: end.Signal, WarnedS: end.WarnedS, LeadS: end.LeadS, Message: end.Detail, Exit: code, Time: end.Time,
		Error: end.Error, Class: end.Class, Advice: end.Advice, Final: end.Final, Trace: end.Trace,
	}
}

// verdictOfCode makes a verdict from srun's exit code or from the failure of the setup, for an attempt whose agents left none.
func (a *Attempt) verdictOfCode(code int) rundir.Verdict {
	v := rundir.Verdict{
		Attempt: a.Number, JobID: a.JobID, Cause: causeUnknown, FirstRank: -1, Exit: code, Time: a.Env.Now(),
		Message: fmt.Sprintf("srun ended with code %d and no agent left a verdict; see the job's log", code),
	}
	if a.unread {
		v.Message = fmt.Sprintf("srun ended with code %d and the attempt's verdict cannot be read; see the job's log", code)
	}
	if a.unstarted {
		v.Unstarted, v.Message = true, "the job was told to end before its workers were started"
	}
	if a.failure != "" {
		v.Cause, v.Message = string(recovery.Start), a.failure
	}
	if code == 0 && len(a.Signals) == 0 {
		v.Cause, v.Message = string(recovery.Done), "srun ended with code 0"
	}
	return v
}

// noneStarted reports whether no agent left a verdict and no rank had started: each rank has its logs from its start on.
func (a *Attempt) noneStarted() bool {
	if !a.Silent || a.unread {
		return false
	}
	logs, err := a.Run.RankLogs(a.Number)
	return err == nil && len(logs) == 0
}

// withStep adds the last step that the attempt recorded, in case its agents died before they could.
func (a *Attempt) withStep(v rundir.Verdict) rundir.Verdict {
	step, err := a.Run.StepOf(a.Number)
	if err != nil {
		a.Env.Log.Warn("cannot find the attempt's last step", "error", err)
	}
	v.Step = max(v.Step, step)
	return v
}

// amend writes v if it says more about the attempt's end than before, or if the ledger does not have the end yet: an agent writes the
// verdict twice, and the ledger's line the second time, and may die in between.
func (a *Attempt) amend(history []rundir.Event, before, v rundir.Verdict) error {
	ended := slices.ContainsFunc(history, func(e rundir.Event) bool { return e.Event == rundir.EventEnd && e.Attempt == a.Number })
	if ended && v.Cause == before.Cause && v.Message == before.Message && v.Step == before.Step {
		return nil
	}
	return a.Record(v)
}

// Record writes a verdict, and the ledger's line for it.
func (a *Attempt) Record(v rundir.Verdict) error {
	return errors.Join(a.write(v), a.Run.Append(v.Event()))
}

// write writes a verdict, unless there already is one that cannot be read.
func (a *Attempt) write(v rundir.Verdict) error {
	if a.unread {
		return nil
	}
	return a.Run.WriteVerdict(v)
}
