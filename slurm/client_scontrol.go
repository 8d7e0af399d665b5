package slurm

import (
	"context"
	"strconv"
	"strings"
)

// scontrol asks the controller for all it keeps of one job. That it does not know it is
// [ErrUnknownJob].
func (c *Client) scontrol(ctx context.Context, cluster, id string) ([]JobStatus, error) {
	out, err := c.run(ctx, "scontrol", onCluster(cluster, []string{"show", "job", "-o", id})...)
	if err != nil {
		return nil, err
	}
	if err := failure("scontrol", out); err != nil {
		return nil, err
	}
	return parseScontrol(out.Stdout), nil
}

// parseScontrol reads the output of "scontrol show job -o": a line per job of Key=Value, parted by
// blanks. Values may hold blanks, and nothing is quoted. Only the name and the reason do so
// among those read here; each is taken to end where the key that follows it begins.
func parseScontrol(stdout []byte) []JobStatus {
	var jobs []JobStatus
	for line := range strings.Lines(string(stdout)) {
		line = strings.TrimSuffix(line, "\n")
		head, tail, found := strings.Cut(line, " UserId=")
		head, name, named := strings.Cut(head, " JobName=")
		if !found || !named || !strings.HasPrefix(head, "JobId=") {
			continue
		}
		jobs = append(jobs, scontrolJob(head, name, tail))
	}
	return jobs
}

func scontrolJob(head, name, tail string) JobStatus {
	job := JobStatus{
		ID:        scontrolID(" " + head),
		RawID:     scontrolField(" "+head, "JobId", " "),
		Name:      name,
		State:     scontrolField(tail, "JobState", " "),
		Reason:    scontrolReason(tail),
		ExitCode:  scontrolField(tail, "ExitCode", " "),
		Nodes:     scontrolField(tail, "NumNodes", " "),
		NodeList:  scontrolField(tail, "NodeList", " "),
		StartTime: scontrolField(tail, "StartTime", " "),
		EndTime:   scontrolField(tail, "EndTime", " "),
		TimeLimit: scontrolField(tail, "TimeLimit", " "),
		Restarts:  -1,
	}
	if n, err := strconv.Atoi(scontrolField(tail, "Restarts", " ")); err == nil {
		job.Restarts = n
	}
	if job.NodeList == "(null)" {
		job.NodeList = ""
	}
	return job
}

// scontrolReason reads the reason, which may hold blanks. A node that failed, if any, is told between it and the dependency.
func scontrolReason(tail string) string {
	reason, _, _ := strings.Cut(scontrolField(tail, "Reason", " Dependency="), " FailedNode=")
	return reason
}

// scontrolID puts an id together as squeue shows it.
func scontrolID(head string) string {
	if array := scontrolField(head, "ArrayJobId", " "); array != "" {
		element := scontrolField(head, "ArrayTaskId", " ")
		if strings.Trim(element, "0123456789") != "" {
			element = "[" + element + "]"
		}
		return array + "_" + element
	}
	if leader := scontrolField(head, "HetJobId", " "); leader != "" {
		return leader + "+" + scontrolField(head, "HetJobOffset", " ")
	}
	return scontrolField(head, "JobId", " ")
}

// scontrolField is the value of the first " key=" in text, up to end.
func scontrolField(text, key, end string) string {
	_, value, _ := strings.Cut(text, " "+key+"=")
	value, _, _ = strings.Cut(value, end)
	return value
}
