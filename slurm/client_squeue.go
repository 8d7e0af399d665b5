package slurm

import (
	"context"
	"errors"
	"strings"
)

// separator parts the fields of what squeue and sacct print: no name, reason or list of nodes
// holds the unit separator, while names do hold blanks and bars.
const separator = "\x1f"

// squeueFormat asks for the fields that parseSqueue reads; the name stands last, so that it may
// hold anything.
var squeueFormat = strings.Join([]string{"%i", "%A", "%T", "%r", "%D", "%N", "%S", "%e", "%l", "%j"}, separator)

// squeue asks the controller, which knows jobs until some minutes (MinJobAge) after their
// end. That it knows none of ids is no error.
func (c *Client) squeue(ctx context.Context, cluster string, ids []string) ([]JobStatus, error) {
	args := []string{"-h", "-t", "all", "-j", strings.Join(ids, ","), "-o", squeueFormat}
	out, err := c.run(ctx, "squeue", onCluster(cluster, args)...)
	if err != nil {
		return nil, err
	}
	if err := failure("squeue", out); err != nil && !errors.Is(err, ErrUnknownJob) {
		return nil, err
	}
	return parseSqueue(out.Stdout), nil
}

// parseSqueue reads the lines that have all fields of squeueFormat; others are a site's
// greeting, or the name of the cluster.
func parseSqueue(stdout []byte) []JobStatus {
	var jobs []JobStatus
	for line := range strings.Lines(string(stdout)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), separator, 10)
		if len(f) != 10 || !isNumber(base(f[0])) {
			continue
		}
		jobs = append(jobs, JobStatus{
			ID: f[0], RawID: f[1], State: f[2], Reason: f[3], Nodes: f[4], NodeList: f[5],
			StartTime: f[6], EndTime: f[7], TimeLimit: f[8], Name: f[9], Restarts: -1,
		})
	}
	return jobs
}

// onCluster puts the option that names a cluster before args.
func onCluster(cluster string, args []string) []string {
	if cluster == "" {
		return args
	}
	return append([]string{"--clusters=" + cluster}, args...)
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
