package jobenv

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"ddpbatch/internal/usage"
)

// LookupIn returns a function that looks up variables in an environment. If a name has several entries, the last one counts, as in os/exec.
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

// JobID returns the id of the job that the variables describe, as people write it: 12, or 12_3 for element 3 of array 12, whose
// SLURM_JOB_ID is another number (for the last element it is 12, too).
func JobID(lookup func(string) (string, bool)) string {
	if index, _ := lookup("SLURM_ARRAY_TASK_ID"); index != "" {
		array, _ := lookup("SLURM_ARRAY_JOB_ID")
		return array + "_" + index
	}
	id, _ := lookup("SLURM_JOB_ID")
	return id
}

// PortsVariable names the variable that passes Slurm's SrunPortRange to the agents of a batch job.
const PortsVariable = "DDPBATCH_PORTS"

// latestDeadline is the end of the year 9999: a larger number is in milliseconds, or a typing error.
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
			"DDPBATCH_DEADLINE is %q, which is not between the years 1970 and 9999: write seconds, not milliseconds", text)
	}
	return time.Unix(seconds, 0), nil
}

// SlurmDeadline returns the end of the allocation around this process. It is zero for a job without a time limit, and if Slurm does not set
// the variable.
func SlurmDeadline(lookup func(string) (string, bool)) time.Time {
	text, _ := lookup("SLURM_JOB_END_TIME")
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 1 || seconds > latestDeadline {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// DeadlineEnviron returns the variable that passes a deadline on to processes that do not inherit this one's environment.
func DeadlineEnviron(at time.Time) []string {
	if at.IsZero() {
		return nil
	}
	return []string{"DDPBATCH_DEADLINE=" + strconv.FormatInt(at.Unix(), 10)}
}
