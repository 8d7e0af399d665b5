package slurm

import (
	"context"
	"errors"
	"os"
	"strings"
)

// JobsOfScript are the jobs of a user that were submitted with the script at an absolute path, and that the controller knows, so that it
// finds one of which nobody got to see the id. user is a number, or "" for who asks. Accounting is not asked: a job that only it knows is
// over.
func (c *Client) JobsOfScript(ctx context.Context, script, user string) ([]JobStatus, error) {
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
	var found []JobStatus
	for line := range strings.Lines(string(out.Stdout)) {
		command, rest, _ := strings.Cut(line, separator)
		if sameFile(strings.TrimSpace(command), script) {
			found = append(found, parseSqueue([]byte(rest))...)
		}
	}
	return found, nil
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
