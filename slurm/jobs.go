package slurm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Jobs tells what Slurm knows of the jobs that ids name (see [ParseJobID] for their forms): for
// each id, in the order given, the job itself, or of an array or a heterogeneous job all parts.
//
// It asks the controller first (squeue), then, of what that does not know any more and of
// how ended jobs ended, accounting (sacct) and last scontrol. If some id is known to none
// of them, the error matches [ErrUnknownJob] and names it, and what is known of the others is
// returned beside it. If the controller is down and accounting cannot help, the error matches
// [ErrUnreachable].
func (c *Client) Jobs(ctx context.Context, ids []string) ([]JobStatus, error) {
	byCluster := map[string][]string{}
	parsed := make([]JobID, len(ids))
	for i, id := range ids {
		var err error
		if parsed[i], err = ParseJobID(id); err != nil {
			return nil, err
		}
		byCluster[parsed[i].Cluster] = append(byCluster[parsed[i].Cluster], parsed[i].ID)
	}
	known := map[string][]JobStatus{}
	var errs []error
	for _, cluster := range slices.Sorted(maps.Keys(byCluster)) {
		jobs, err := c.clusterJobs(ctx, cluster, byCluster[cluster])
		known[cluster] = jobs
		errs = append(errs, err)
	}
	var all []JobStatus
	for _, id := range parsed {
		all = append(all, pick(known[id.Cluster], id.ID)...)
	}
	return all, errors.Join(errs...)
}

// clusterJobs asks one cluster's commands in turn. A caller that stops before all have been asked gets its reason as an error.
func (c *Client) clusterJobs(ctx context.Context, cluster string, ids []string) ([]JobStatus, error) {
	jobs, controllerErr := c.squeue(ctx, cluster, ids)
	if absent(controllerErr) {
		return nil, controllerErr
	}
	open := openIDs(jobs, ids)
	if len(open) == 0 {
		return jobs, nil
	}
	recorded, sacctErr := c.sacct(ctx, cluster, open)
	jobs = supplement(jobs, recorded)
	open = openIDs(jobs, ids)
	if controllerErr == nil {
		for _, id := range open {
			shown, err := c.scontrol(ctx, cluster, id)
			if err != nil && !errors.Is(err, ErrUnknownJob) && !absent(err) {
				controllerErr = err
			}
			jobs = supplement(jobs, shown)
		}
	}
	if open = openIDs(jobs, ids); len(open) > 0 && ctx.Err() != nil {
		return nil, fmt.Errorf("ask Slurm for job %s: %w: %w", strings.Join(open, ", "), ctx.Err(), context.Cause(ctx))
	}
	return jobs, unknown(jobs, ids, controllerErr, sacctErr)
}

// openIDs are those of ids of which jobs tells nothing, or not how they ended.
func openIDs(jobs []JobStatus, ids []string) []string {
	var open []string
	for _, id := range ids {
		found := pick(jobs, id)
		if len(found) == 0 || slices.ContainsFunc(found, func(s JobStatus) bool { return s.Ended() && s.ExitCode == "" }) {
			open = append(open, id)
		}
	}
	return open
}

// supplement adds to jobs what a further source tells: the exit code and the restarts of a job that
// is there already, and jobs that are not. What is left of an array is the first source's to
// tell, since it is the fresher one: of that array only ended elements are added.
func supplement(jobs, more []JobStatus) []JobStatus {
	first := slices.Clone(jobs)
	for _, m := range more {
		i := slices.IndexFunc(jobs, func(s JobStatus) bool { return s.ID == m.ID })
		if i < 0 {
			if m.Ended() || len(pick(first, WholeID(m.ID))) == 0 {
				jobs = append(jobs, m)
			}
			continue
		}
		if jobs[i].ExitCode == "" && jobs[i].Ended() && m.Ended() {
			jobs[i].ExitCode = m.ExitCode
		}
		jobs[i].Restarts = max(jobs[i].Restarts, m.Restarts)
	}
	return jobs
}

// pick returns the parts of the job that id names.
func pick(jobs []JobStatus, id string) []JobStatus {
	var found []JobStatus
	for _, s := range jobs {
		if s.Of(id) {
			found = append(found, s)
		}
	}
	return found
}

// unknown is the error for those of ids that no source knows. A source that could not be
// asked might have known them, so that what kept it from answering is the error then; but a
// site without accounting is none.
func unknown(jobs []JobStatus, ids []string, controllerErr, sacctErr error) error {
	missing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return len(pick(jobs, id)) > 0 })
	switch {
	case len(missing) == 0:
		return nil
	case controllerErr != nil:
		return controllerErr
	case sacctErr != nil && !absent(sacctErr) && !withoutAccounting(sacctErr):
		return fmt.Errorf("ask accounting for job %s: %w", strings.Join(missing, ", "), sacctErr)
	}
	return fmt.Errorf("%w %s", ErrUnknownJob, strings.Join(missing, ", "))
}

// withoutAccounting tells whether sacct has nothing to ask.
func withoutAccounting(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && strings.Contains(refused.Words, "accounting storage is disabled")
}

// separator parts the fields of what squeue and sacct print: no name, reason or list of nodes
// holds the unit separator, while names do hold blanks and bars.
const separator = "\x1f"

// squeueFormat asks for the fields that parseSqueue reads; the name stands last, so that it may
// hold anything.
var squeueFormat = strings.Join([]string{"%i", "%A", "%T", "%r", "%e", "%l", "%j"}, separator)

// squeue asks the controller, which knows jobs until some minutes (MinJobAge) after their
// end. That it knows none of ids is no error.
func (c *Client) squeue(ctx context.Context, cluster string, ids []string) ([]JobStatus, error) {
	out, err := c.ask(ctx, "squeue", onCluster(cluster, "-h", "-t", "all", "-j", strings.Join(ids, ","), "-o", squeueFormat)...)
	if err != nil && !errors.Is(err, ErrUnknownJob) {
		return nil, err
	}
	return parseSqueue(out), nil
}

// parseSqueue reads the lines that have all fields of squeueFormat; others are a site's
// greeting, or the name of the cluster.
func parseSqueue(stdout []byte) []JobStatus {
	var jobs []JobStatus
	for line := range strings.Lines(string(stdout)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), separator, 7)
		if len(f) != 7 || !isNumber(WholeID(f[0])) {
			continue
		}
		jobs = append(jobs, JobStatus{
			ID: f[0], RawID: f[1], State: f[2], Reason: f[3], EndTime: f[4], TimeLimit: f[5], Name: f[6], Restarts: -1,
		})
	}
	return jobs
}

const clustersOption = "--clusters="

// onCluster puts the option that names a cluster before args.
func onCluster(cluster string, args ...string) []string {
	if cluster == "" {
		return args
	}
	return append([]string{clustersOption + cluster}, args...)
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

const sacctFormat = "JobID,JobIDRaw,State,ExitCode,Reason,End,Timelimit,JobName"

// sacct asks the accounting database, where the site has one: it knows every job there was.
// That it knows none of ids is no error (sacct then prints nothing and exits with 0).
func (c *Client) sacct(ctx context.Context, cluster string, ids []string) ([]JobStatus, error) {
	args := []string{"-n", "-P", "-X", "--delimiter=" + separator, "-j", strings.Join(ids, ","), "-o", sacctFormat}
	out, err := c.ask(ctx, "sacct", onCluster(cluster, args...)...)
	if err != nil {
		return nil, err
	}
	return parseSacct(out), nil
}

// parseSacct reads the lines that have all fields of sacctFormat.
func parseSacct(stdout []byte) []JobStatus {
	var jobs []JobStatus
	for line := range strings.Lines(string(stdout)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), separator, 8)
		if len(f) != 8 || !isNumber(WholeID(f[0])) {
			continue
		}
		state, _, _ := strings.Cut(f[2], " ") // "CANCELLED by 1000"
		job := JobStatus{
			ID: f[0], RawID: f[1], State: state, ExitCode: f[3], Reason: f[4], EndTime: f[5], TimeLimit: f[6], Name: f[7], Restarts: -1,
		}
		if job.Ended() {
			job.Reason = "" // it is why the job waited, and no reason for its end
		}
		jobs = append(jobs, job)
	}
	return jobs
}

// scontrol asks the controller for all it keeps of one job. That it does not know it is
// [ErrUnknownJob].
func (c *Client) scontrol(ctx context.Context, cluster, id string) ([]JobStatus, error) {
	out, err := c.ask(ctx, "scontrol", onCluster(cluster, "show", "job", "-o", id)...)
	if err != nil {
		return nil, err
	}
	return parseScontrol(out), nil
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
	// The reason may hold blanks. A node that failed, if any, is told between it and the dependency.
	reason, _, _ := strings.Cut(scontrolField(tail, "Reason", " Dependency="), " FailedNode=")
	job := JobStatus{
		ID:        scontrolID(" " + head),
		RawID:     scontrolField(" "+head, "JobId", " "),
		Name:      name,
		State:     scontrolField(tail, "JobState", " "),
		Reason:    reason,
		ExitCode:  scontrolField(tail, "ExitCode", " "),
		EndTime:   scontrolField(tail, "EndTime", " "),
		TimeLimit: scontrolField(tail, "TimeLimit", " "),
		Restarts:  -1,
	}
	if n, err := strconv.Atoi(scontrolField(tail, "Restarts", " ")); err == nil {
		job.Restarts = n
	}
	return job
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
