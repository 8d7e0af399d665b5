package slurm

import (
	"context"
	"errors"
	"os"
	"strings"
)

// UserJobs are the jobs of a user, with the scripts that they were submitted with.
type UserJobs []userJob

type userJob struct {
	JobStatus
	script string
}

// UserJobs returns the jobs of a user that the controller knows. user is a number; "" means the caller. Accounting is not asked, because
// a job that only accounting knows is over.
func (c *Client) UserJobs(ctx context.Context, user string) (UserJobs, error) {
	whose := "--me"
	if user != "" {
		whose = "--users=" + user
	}
	out, err := c.run(ctx, "squeue", "-h", "-t", "all", whose, "-o", "%o"+separator+squeueFormat)
	if err == nil {
		err = failure("squeue", out)
	}
	if err != nil && !errors.Is(err, ErrUnknownJob) {
		return nil, err
	}
	var all UserJobs
	for line := range strings.Lines(string(out.Stdout)) {
		script, rest, _ := strings.Cut(line, separator)
		for _, job := range parseSqueue([]byte(rest)) {
			all = append(all, userJob{job, strings.TrimSpace(script)})
		}
	}
	return all, nil
}

// OfScript returns the jobs that were submitted with the script at an absolute path. So a job is found even if nobody saw its id.
func (all UserJobs) OfScript(script string) []JobStatus {
	var found []JobStatus
	for _, job := range all {
		if sameFile(job.script, script) {
			found = append(found, job.JobStatus)
		}
	}
	return found
}

// sameFile tells whether two paths are one, or lead to one file: a folder may have several names.
func sameFile(one, other string) bool {
	if one == other {
		return true
	}
	a, err := os.Stat(one)
	if err != nil {
		return false
	}
	b, err := os.Stat(other)
	return err == nil && os.SameFile(a, b)
}
