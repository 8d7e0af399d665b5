package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/rundir"
	"ddpbatch/slurm"
)

// newAttemptCommand is what the batch script calls before and after srun; it is hidden, as
// nobody types it.
func newAttemptCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:   "attempt",
		Usage:  "begin and end an attempt of a run (the batch script's own)",
		Hidden: true,
		Subcommands: []*cli.Command{
			{
				Name: "begin", Usage: "claim the next attempt; print its variables for eval", ArgsUsage: "RUN",
				Action: func(c *cli.Context) error {
					path, err := oneArg(c, "run directory")
					if err != nil {
						return err
					}
					return runAttemptBegin(e, path)
				},
			},
			{
				Name: "end", Usage: "record how srun ended; exit with the attempt's code", ArgsUsage: "RUN",
				Flags: []cli.Flag{&cli.IntFlag{Name: "code", Usage: "srun's exit `CODE`", Required: true}},
				Action: func(c *cli.Context) error {
					path, err := oneArg(c, "run directory")
					if err != nil {
						return err
					}
					return runAttemptEnd(e, path, c.Int("code"))
				},
			},
		},
	}
}

// attempt is one claimed attempt of a run, with the secret of its ranks.
type attempt struct {
	run    *rundir.Dir
	number int
	secret auth.Secret
	jobID  string
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
	err = run.Append(rundir.Event{Time: e.Now(), Event: "begin", Attempt: number, Detail: "job " + jobID})
	return &attempt{run: run, number: number, secret: secret, jobID: jobID}, err
}

// environ is what the attempt's agents read.
func (a *attempt) environ() []string {
	return []string{
		"DDPBATCH_RUN_DIR=" + a.run.Path(),
		"DDPBATCH_ATTEMPT=" + strconv.Itoa(a.number),
		"DDPBATCH_SECRET=" + a.secret.Hex(),
	}
}

// causeUnknown is the cause in a verdict that no agent left.
const causeUnknown = "unknown"

// end returns the attempt's verdict: agent 0's own, or, where no agent lived to write it, one made of
// srun's code.
func (a *attempt) end(e *env, code int) (rundir.Verdict, error) {
	v, err := a.run.Verdict(a.number)
	if err == nil {
		return v, a.run.Settle(v.Exit != exitMismatch)
	}
	v = rundir.Verdict{
		Attempt: a.number, JobID: a.jobID, Cause: causeUnknown, FirstRank: -1, Exit: code, Time: e.Now(),
		Message: fmt.Sprintf("srun ended with code %d and no agent left a verdict; see the job's log", code),
	}
	if code == 0 {
		v.Cause, v.Message = "done", "srun ended with code 0"
	}
	return v, errors.Join(
		a.run.WriteVerdict(v),
		a.run.Append(rundir.Event{Time: e.Now(), Event: "end", Attempt: a.number, Cause: v.Cause, Detail: v.Message}),
	)
}

func runAttemptBegin(e *env, path string) error {
	run, err := rundir.Open(e.abs(path))
	if err != nil {
		return err
	}
	jobID := jobIDOf(e)
	if index, ok := e.lookup("SLURM_ARRAY_TASK_ID"); ok {
		n, err := strconv.Atoi(index)
		if err != nil {
			return fmt.Errorf("read SLURM_ARRAY_TASK_ID: %w", err)
		}
		if run, err = run.Task(n); err != nil {
			return err
		}
		// submit gave the run the id of the whole array
		if err := run.SetJobID(jobID); err != nil {
			return err
		}
	}
	a, err := beginAttempt(e, run, jobID)
	if err != nil {
		return err
	}
	for _, pair := range a.environ() {
		fmt.Fprintln(e.Out, "export "+slurm.ShellAssign(pair))
	}
	return nil
}

// jobIDOf is the id of the job around this process as people write it: 12, or 12_3 for element 3 of array 12, whose
// SLURM_JOB_ID is a number of its own (that of the last element: 12 again).
func jobIDOf(e *env) string {
	if index := e.get("SLURM_ARRAY_TASK_ID"); index != "" {
		return e.get("SLURM_ARRAY_JOB_ID") + "_" + index
	}
	return e.get("SLURM_JOB_ID")
}

func runAttemptEnd(e *env, path string, code int) error {
	run, err := rundir.Open(e.abs(path))
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(e.get("DDPBATCH_ATTEMPT"))
	if err != nil {
		return fmt.Errorf("read DDPBATCH_ATTEMPT: %w", err)
	}
	a := &attempt{run: run, number: number, jobID: jobIDOf(e)}
	v, err := a.end(e, code)
	if err != nil {
		return &codeError{code: max(code, exitFailed), err: err}
	}
	if v.Exit != 0 {
		fmt.Fprintf(e.Err, "ddpbatch: attempt %d: %s\n", v.Attempt, v.Message)
		return &codeError{code: v.Exit}
	}
	return nil
}
