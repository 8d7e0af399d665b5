package slurm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// TimeLeft tells how much time is left until its limit ends a running job; [Unlimited] where it has none, and nothing or less
// where the limit is over. It is asked of squeue, once: Slurm 22.05 does not tell a job its end otherwise.
func (c *Client) TimeLeft(ctx context.Context, id string) (time.Duration, error) {
	job, err := ParseJobID(id)
	if err != nil {
		return 0, err
	}
	out, err := c.run(ctx, "squeue", onCluster(job.Cluster, []string{"-h", "-t", "all", "-j", job.ID, "-o", "%i" + separator + "%L"})...)
	if err == nil {
		err = failure("squeue", out)
	}
	if err != nil {
		return 0, fmt.Errorf("ask when job %s ends: %w", job.ID, err)
	}
	for line := range strings.Lines(string(out.Stdout)) {
		shown, left, found := strings.Cut(strings.TrimSpace(line), separator)
		if found && (JobStatus{ID: shown}).Of(job.ID) {
			return parseTimeLeft(left)
		}
	}
	return 0, fmt.Errorf("ask when job %s ends: %w", job.ID, ErrUnknownJob)
}

// parseTimeLeft reads squeue's %L: "9:08", "1-02:03:04", UNLIMITED, NOT_SET or N/A where there is no limit (yet), INVALID where
// the limit is over.
func parseTimeLeft(s string) (time.Duration, error) {
	switch strings.ToUpper(s) {
	case "INVALID":
		return 0, nil
	case "NOT_SET", "N/A":
		return Unlimited, nil
	}
	return ParseTime(s)
}

// KillWait is how long the cluster waits between the SIGTERM and the SIGKILL by which it ends a job (slurm.conf, KillWait).
func (c *Client) KillWait(ctx context.Context) (time.Duration, error) {
	out, err := c.run(ctx, "scontrol", "show", "config")
	if err == nil {
		err = failure("scontrol", out)
	}
	if err != nil {
		return 0, fmt.Errorf("ask for KillWait: %w", err)
	}
	for line := range strings.Lines(string(out.Stdout)) {
		name, value, _ := strings.Cut(line, "=")
		if strings.TrimSpace(name) != "KillWait" {
			continue
		}
		number, _, _ := strings.Cut(strings.TrimSpace(value), " ") // "30 sec"
		seconds, err := strconv.ParseUint(number, 10, 16)          // slurm_conf_t has it in 16 bits
		if err != nil {
			return 0, fmt.Errorf("ask for KillWait: Slurm says %s, which is no number of seconds", clip(value))
		}
		return time.Duration(seconds) * time.Second, nil
	}
	return 0, errors.New("ask for KillWait: Slurm's configuration does not name it")
}
