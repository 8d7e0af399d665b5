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

// end returns the attempt's verdict: agent 0's own, or, where no agent lived to write it, one made of
// srun's code.
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

// readVerdict is the agents' own verdict of the attempt; ok is false where nobody lived to leave one. A verdict that is there and cannot
// be read may be good, and is never written over: the ledger takes its place, with code as the exit code.
func (a *Attempt) readVerdict(code int) (v rundir.Verdict, ok bool, err error) {
	v, err = a.Run.Verdict(a.Number)
	switch {
	case err == nil:
		return v, true, nil
	case errors.Is(err, fs.ErrNotExist), errors.As(err, new(*json.SyntaxError)): // cut short by a crash
		return v, false, nil
	}
	a.unread = true
	a.Env.Log.Warn("the attempt's verdict cannot be read; it is left as it is, and the run's ledger tells how the attempt ended", "error",
		err)
	history, err := a.Run.Ledger()
	for _, event := range slices.Backward(history) {
		if event.Event == rundir.EventEnd && event.Attempt == a.Number {
			return a.verdictOfEvent(event, code), true, nil
		}
	}
	return v, false, err
}

// verdictOfEvent is the verdict that an end in the ledger comes from, as far as it tells.
func (a *Attempt) verdictOfEvent(end rundir.Event, code int) rundir.Verdict {
	return rundir.Verdict{
		Attempt: a.Number, JobID: a.JobID, Cause: end.Cause, FirstRank: -1, Host: end.Node, Nodes: end.Nodes,
		Drain: end.Drain, Unfit: end.Unfit,
		Step: end.Step, Saved: end.Saved,
		Signal: end.Signal, WarnedS: end.WarnedS, LeadS: end.LeadS, Message: end.Detail, Exit: code, Time: end.Time,
		Error: end.Error, Class: end.Class, Advice: end.Advice, Final: end.Final, Trace: end.Trace,
	}
}

// verdictOfCode makes a verdict for an attempt for which no agent left one, from srun's exit code or from the failure of the setup.
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

// noneStarted tells that no agent left a verdict, and that none had begun a rank: each rank has its logs from its start on.
func (a *Attempt) noneStarted() bool {
	if !a.Silent || a.unread {
		return false
	}
	logs, err := a.Run.RankLogs(a.Number)
	return err == nil && len(logs) == 0
}

// withStep adds the last step that the attempt told of, which its agents may not have lived to do.
func (a *Attempt) withStep(v rundir.Verdict) rundir.Verdict {
	step, err := a.Run.StepOf(a.Number)
	if err != nil {
		a.Env.Log.Warn("the last step is not known", "error", err)
	}
	v.Step = max(v.Step, step)
	return v
}

// amend puts on disk what is better known of the attempt's end than before, and what nobody lived to put there: an agent writes the verdict
// twice, and the ledger's line the second time.
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

// write puts a verdict on disk, if there is not one already that cannot be read.
func (a *Attempt) write(v rundir.Verdict) error {
	if a.unread {
		return nil
	}
	return a.Run.WriteVerdict(v)
}
