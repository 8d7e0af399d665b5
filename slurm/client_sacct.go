package slurm

import (
	"context"
	"strings"
)

const sacctFormat = "JobID,JobIDRaw,State,ExitCode,Reason,NNodes,NodeList,Start,End,Timelimit,JobName"

// sacct asks the accounting database, where the site has one: it knows every job there was.
// That it knows none of ids is no error (sacct then prints nothing and exits with 0).
func (c *Client) sacct(ctx context.Context, cluster string, ids []string) ([]JobStatus, error) {
	args := []string{"-n", "-P", "-X", "--delimiter=" + separator, "-j", strings.Join(ids, ","), "-o", sacctFormat}
	out, err := c.run(ctx, "sacct", onCluster(cluster, args)...)
	if err != nil {
		return nil, err
	}
	if err := failure("sacct", out); err != nil {
		return nil, err
	}
	return parseSacct(out.Stdout), nil
}

// parseSacct reads the lines that have all fields of sacctFormat.
func parseSacct(stdout []byte) []JobStatus {
	var jobs []JobStatus
	for line := range strings.Lines(string(stdout)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), separator, 11)
		if len(f) != 11 || !isNumber(base(f[0])) {
			continue
		}
		state, _, _ := strings.Cut(f[2], " ") // "CANCELLED by 1000"
		nodes := f[6]
		if nodes == "None assigned" {
			nodes = ""
		}
		job := JobStatus{
			ID: f[0], RawID: f[1], State: state, ExitCode: f[3], Reason: f[4], Nodes: f[5], NodeList: nodes,
			StartTime: f[7], EndTime: f[8], TimeLimit: f[9], Name: f[10], Restarts: -1,
		}
		if job.Ended() {
			job.Reason = "" // it is why the job waited, and no reason for its end
		}
		jobs = append(jobs, job)
	}
	return jobs
}
