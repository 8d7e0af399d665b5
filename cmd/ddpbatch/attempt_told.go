package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
)

// told is the agents' own verdict of the attempt; ok is false where nobody lived to leave one. A verdict that is there and cannot be read may
// be good, and is never written over: the ledger takes its place, with code as the exit code.
func (a *attempt) told(e *env, code int) (v rundir.Verdict, ok bool, err error) {
	v, err = a.run.Verdict(a.number)
	var cut *json.SyntaxError
	switch {
	case err == nil:
		return v, true, nil
	case errors.Is(err, fs.ErrNotExist), errors.As(err, &cut): // by a crash
		return v, false, nil
	}
	a.unread = true
	e.log().Warn("the attempt's verdict cannot be read; it is left as it is, and the run's ledger tells how the attempt ended", "error", err)
	history, err := a.run.Ledger()
	for _, event := range slices.Backward(history) {
		if event.Event == rundir.EventEnd && event.Attempt == a.number {
			return a.retold(event, code), true, nil
		}
	}
	return v, false, err
}

// retold is the verdict that an end in the ledger comes from, as far as it tells.
func (a *attempt) retold(end rundir.Event, code int) rundir.Verdict {
	return rundir.Verdict{
		Attempt: a.number, JobID: a.jobID, Cause: end.Cause, FirstRank: -1, Host: end.Node, Nodes: end.Nodes, Step: end.Step, Saved: end.Saved,
		Signal: end.Signal, WarnedS: end.WarnedS, LeadS: end.LeadS, Message: end.Detail, Exit: code, Time: end.Time,
	}
}

// untold makes a verdict for an attempt for which no agent left one, from srun's exit code or from the failure of the setup.
func (a *attempt) untold(e *env, code int) rundir.Verdict {
	v := rundir.Verdict{
		Attempt: a.number, JobID: a.jobID, Cause: causeUnknown, FirstRank: -1, Exit: code, Time: e.Now(),
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
	if code == 0 && len(a.signals) == 0 {
		v.Cause, v.Message = string(recovery.Done), "srun ended with code 0"
	}
	return v
}

// unmet tells that no agent left a verdict, and that none had begun a rank: each rank has its logs from its start on.
func (a *attempt) unmet() bool {
	if !a.silent || a.unread {
		return false
	}
	logs, err := a.run.RankLogs(a.number)
	return err == nil && len(logs) == 0
}

// write puts a verdict on disk, if there is not one already that cannot be read.
func (a *attempt) write(v rundir.Verdict) error {
	if a.unread {
		return nil
	}
	return a.run.WriteVerdict(v)
}
