package main

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
)

// attempt is one claimed attempt of a run, with the secret of its ranks.
type attempt struct {
	run     *rundir.Dir
	number  int
	secret  auth.Secret
	jobID   string
	signals []string // that the batch script got; none: nobody has told it to end

	killWait time.Duration // Slurm's, between TERM and KILL; 0: not known
	silent   bool          // no agent lived to write a verdict
	unread   bool          // there is a verdict, and it cannot be read

	unstarted bool   // the job was told to end before srun was called
	failure   string // of the setup, less what may be secret in it; "": none
}

// beginAttempt claims the next attempt of run.
func beginAttempt(e *env, run *rundir.Dir, jobID string) (*attempt, error) {
	secret, err := auth.NewSecret()
	if err != nil {
		return nil, err
	}
	number, err := run.ClaimAttempt()
	if err != nil {
		return nil, err
	}
	err = run.Append(rundir.Event{
		Time: e.Now(), Event: rundir.EventBegin, Attempt: number, Job: jobID, Start: startOf(e), Detail: "job " + jobID,
	})
	return &attempt{run: run, number: number, secret: secret, jobID: jobID}, err
}

// environ is what the attempt's agents read.
func (a *attempt) environ() []string {
	environ := []string{
		"DDPBATCH_RUN_DIR=" + a.run.Path(),
		"DDPBATCH_ATTEMPT=" + strconv.Itoa(a.number),
		"DDPBATCH_SECRET=" + a.secret.Hex(),
		"DDPBATCH_STOP_FILE=" + a.run.StopPath(a.number),
	}
	if a.killWait > 0 {
		environ = append(environ, killWaitName+"="+a.killWait.String())
	}
	return environ
}

// causeUnknown is the cause in a verdict that no agent left.
const causeUnknown = string(recovery.Unknown)

// end returns the attempt's verdict: agent 0's own, or, where no agent lived to write it, one made of
// srun's code.
func (a *attempt) end(e *env, code int) (rundir.Verdict, error) {
	v, told, err := a.told(e, code)
	switch {
	case err != nil:
		return v, err
	case told && a.unread:
		return v, nil
	case told:
		return v, a.run.Settle(v.Exit != exitMismatch)
	}
	a.silent = true
	v = a.untold(e, code)
	v = a.withStep(e, v)
	return v, a.record(v)
}

// withStep adds the last step that the attempt told of, which its agents may not have lived to do.
func (a *attempt) withStep(e *env, v rundir.Verdict) rundir.Verdict {
	step, err := a.run.StepOf(a.number)
	if err != nil {
		e.log().Warn("the last step is not known", "error", err)
	}
	v.Step = max(v.Step, step)
	return v
}

// amend puts on disk what is better known of the attempt's end than before, and what nobody lived to put there: an agent writes the verdict
// twice, and the ledger's line the second time.
func (a *attempt) amend(history []rundir.Event, before, v rundir.Verdict) error {
	ended := slices.ContainsFunc(history, func(e rundir.Event) bool { return e.Event == rundir.EventEnd && e.Attempt == a.number })
	if ended && v.Cause == before.Cause && v.Message == before.Message && v.Step == before.Step {
		return nil
	}
	return a.record(v)
}

// record writes a verdict, and the ledger's line for it.
func (a *attempt) record(v rundir.Verdict) error {
	return errors.Join(a.write(v), a.run.Append(v.Event()))
}

// jobIDOf is the id of the job around this process as people write it: 12, or 12_3 for element 3 of array 12, whose
// SLURM_JOB_ID is a number of its own (that of the last element: 12 again).
func jobIDOf(e *env) string {
	if index := e.get("SLURM_ARRAY_TASK_ID"); index != "" {
		return e.get("SLURM_ARRAY_JOB_ID") + "_" + index
	}
	return e.get("SLURM_JOB_ID")
}

// startOf is how often Slurm has started the job around this process again.
func startOf(e *env) int {
	n, err := strconv.Atoi(e.get("SLURM_RESTART_COUNT")) // absent in a first start
	if err != nil {
		return 0
	}
	return max(0, n)
}
