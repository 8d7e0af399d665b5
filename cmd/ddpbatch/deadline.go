package main

import (
	"context"
	"strconv"
	"time"

	"ddpbatch/slurm"
)

// latestDeadline is the end of the year 9999: what is beyond are milliseconds, or a slip of the pen.
const latestDeadline = 253402300799

// deadlineOf is when the job will be killed: DDPBATCH_DEADLINE, in seconds since 1970 or as RFC 3339 has it, or else SLURM_JOB_END_TIME; zero where
// nobody says. Slurm sets its variable from 23.02 on.
func deadlineOf(e *env) (time.Time, error) {
	text := e.get("DDPBATCH_DEADLINE")
	if text == "" {
		return slurmDeadline(e), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return at, usagef("DDPBATCH_DEADLINE is %q: write seconds since 1970, or a time such as 2026-01-31T12:00:00Z", text)
		}
		seconds = at.Unix()
	}
	if seconds < 1 || seconds > latestDeadline {
		return time.Time{}, usagef("DDPBATCH_DEADLINE is %q, which is not between the years 1970 and 9999: it counts seconds, not milliseconds", text)
	}
	return time.Unix(seconds, 0), nil
}

// slurmDeadline is the end of the allocation around this process. A job without a time limit has none.
func slurmDeadline(e *env) time.Time {
	seconds, err := strconv.ParseInt(e.get("SLURM_JOB_END_TIME"), 10, 64)
	if err != nil || seconds < 1 || seconds > latestDeadline {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// deadlineEnviron hands a deadline on to processes that get no more of this one's environment.
func deadlineEnviron(at time.Time) []string {
	if at.IsZero() {
		return nil
	}
	return []string{"DDPBATCH_DEADLINE=" + strconv.FormatInt(at.Unix(), 10)}
}

// findDeadline asks squeue when the job around this process is ended by its limit: no variable tells before Slurm 23.02, and a limit may be
// moved. It returns nil outside of a job, and where the user has set a deadline; and a function that gives zero for a job without a limit.
func findDeadline(e *env) func(context.Context) (time.Time, error) {
	id := jobIDOf(e)
	if id == "" || e.get("DDPBATCH_DEADLINE") != "" {
		return nil
	}
	return func(ctx context.Context) (time.Time, error) {
		ctx, cancel := context.WithTimeout(ctx, deadlineLimit)
		defer cancel()
		client, _ := newSlurmClient(e)
		left, err := client.TimeLeft(ctx, id)
		if err != nil || left == slurm.Unlimited {
			return time.Time{}, err
		}
		return e.Now().Add(left), nil
	}
}

// deadlineLimit bounds the question.
const deadlineLimit = 3 * time.Second
