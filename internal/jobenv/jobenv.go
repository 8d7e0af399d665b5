package jobenv

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"ddpbatch/internal/usage"
)

// LookupIn finds a variable in an environment; the last entry wins, as in execve's callers.
func LookupIn(environ []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, entry := range slices.Backward(environ) {
			if k, v, ok := strings.Cut(entry, "="); ok && k == name {
				return v, true
			}
		}
		return "", false
	}
}

// JobID is the id of the job that the variables tell of, as people write it: 12, or 12_3 for element 3 of array 12, whose
// SLURM_JOB_ID is a number of its own (that of the last element: 12 again).
func JobID(lookup func(string) (string, bool)) string {
	if index, _ := lookup("SLURM_ARRAY_TASK_ID"); index != "" {
		array, _ := lookup("SLURM_ARRAY_JOB_ID")
		return array + "_" + index
	}
	id, _ := lookup("SLURM_JOB_ID")
	return id
}

// PortsVariable has Slurm's SrunPortRange, for the agents of a batch job.
const PortsVariable = "DDPBATCH_PORTS"

// latestDeadline is the end of the year 9999: what is beyond are milliseconds, or a slip of the pen.
const latestDeadline = 253402300799

// Deadline returns when the job will be killed: DDPBATCH_DEADLINE, in seconds since 1970 or in the form of RFC 3339, or else
// SLURM_JOB_END_TIME, which Slurm sets from 23.02 on. It is zero if neither is set.
func Deadline(lookup func(string) (string, bool)) (time.Time, error) {
	text, _ := lookup("DDPBATCH_DEADLINE")
	if text == "" {
		return SlurmDeadline(lookup), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return at, usage.Errorf("DDPBATCH_DEADLINE is %q: write seconds since 1970, or a time such as 2026-01-31T12:00:00Z", text)
		}
		seconds = at.Unix()
	}
	if seconds < 1 || seconds > latestDeadline {
		return time.Time{}, usage.Errorf(
			"DDPBATCH_DEADLINE is %q, which is not between the years 1970 and 9999: it counts seconds, not milliseconds", text)
	}
	return time.Unix(seconds, 0), nil
}

// SlurmDeadline is the end of the allocation around this process. A job without a time limit has none.
func SlurmDeadline(lookup func(string) (string, bool)) time.Time {
	text, _ := lookup("SLURM_JOB_END_TIME")
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 1 || seconds > latestDeadline {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// DeadlineEnviron hands a deadline on to processes that get no more of this one's environment.
func DeadlineEnviron(at time.Time) []string {
	if at.IsZero() {
		return nil
	}
	return []string{"DDPBATCH_DEADLINE=" + strconv.FormatInt(at.Unix(), 10)}
}
