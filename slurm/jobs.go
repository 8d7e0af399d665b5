package slurm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ddpbatch/internal/text"
)

// Jobs tells what Slurm knows of the jobs that ids name (see [ParseJobID] for their forms): for
// each id, in the order given, the job itself, or of an array or a heterogeneous job all parts.
//
// It asks the controller (squeue), and accounting (sacct) about what that does not know any more: of each cluster once, however many the
// jobs are. If some id is known to neither, the error matches [ErrUnknownJob] and names it, and what is known of the others is
// returned beside it. If the controller is down and accounting cannot help, the error matches [ErrUnreachable].
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
	known := map[string]*jobTable{}
	var errs []error
	for _, cluster := range slices.Sorted(maps.Keys(byCluster)) {
		jobs, err := c.clusterJobs(ctx, cluster, byCluster[cluster])
		known[cluster] = jobs
		errs = append(errs, err)
	}
	var all []JobStatus
	for _, id := range parsed {
		all = append(all, known[id.Cluster].of(id.ID)...)
	}
	return all, errors.Join(errs...)
}

// jobTable is what was told of jobs; nil: nothing.
type jobTable struct {
	jobs []JobStatus
	at   map[string][]int // by the numbers that a job may be asked for
}

func newJobTable(jobs []JobStatus) *jobTable {
	t := &jobTable{at: map[string][]int{}}
	for _, job := range jobs {
		t.add(job)
	}
	return t
}

func (t *jobTable) add(job JobStatus) {
	i, whole := len(t.jobs), WholeID(job.ID)
	t.jobs = append(t.jobs, job)
	t.at[whole] = append(t.at[whole], i)
	if job.RawID != whole {
		t.at[job.RawID] = append(t.at[job.RawID], i)
	}
}

// of returns the parts of the job that id names.
func (t *jobTable) of(id string) (found []JobStatus) {
	if t == nil {
		return nil
	}
	for _, i := range t.at[WholeID(id)] {
		if t.jobs[i].Of(id) {
			found = append(found, t.jobs[i])
		}
	}
	return found
}

// clusterJobs asks one cluster's commands in turn. A caller that stops before all have been asked gets its reason as an error.
func (c *Client) clusterJobs(ctx context.Context, cluster string, ids []string) (*jobTable, error) {
	queued, controllerErr := c.squeue(ctx, cluster, ids)
	if absent(controllerErr) {
		return nil, controllerErr
	}
	jobs := newJobTable(queued)
	open := jobs.open(ids)
	if len(open) == 0 {
		return jobs, nil
	}
	recorded, sacctErr := c.sacct(ctx, cluster, open)
	jobs.supplement(recorded)
	missing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return len(jobs.of(id)) > 0 })
	if len(missing) > 0 && ctx.Err() != nil {
		return nil, fmt.Errorf("ask Slurm for job %s: %w: %w", text.Few(missing, shownIDs), ctx.Err(), context.Cause(ctx))
	}
	return jobs, unknown(missing, controllerErr, sacctErr)
}

// open are those of ids of which accounting may tell more: jobs that are not there, and arrays of which elements have ended, as others may
// have been forgotten.
func (t *jobTable) open(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		found := t.of(id)
		return len(found) > 0 && !slices.ContainsFunc(found, func(s JobStatus) bool { return s.Ended() && strings.Contains(s.ID, "_") })
	})
}

// supplement adds jobs of which accounting tells. What is left of an array is the controller's to tell, whose word is the fresher one: of
// that array only ended elements are added.
func (t *jobTable) supplement(recorded []JobStatus) {
	first := newJobTable(t.jobs)
	for _, job := range recorded {
		isThere := func(s JobStatus) bool { return s.ID == job.ID }
		if whole := first.of(WholeID(job.ID)); len(whole) == 0 || job.Ended() && !slices.ContainsFunc(whole, isThere) {
			t.add(job)
		}
	}
}

// shownIDs is how many jobs an error names.
const shownIDs = 10

// unknown is the error for those ids that no source knows. A source that could not be
// asked might have known them, so that what kept it from answering is the error then; but a
// site without accounting is none.
func unknown(missing []string, controllerErr, sacctErr error) error {
	switch {
	case len(missing) == 0:
		return nil
	case controllerErr != nil:
		return controllerErr
	case sacctErr != nil && !absent(sacctErr) && !withoutAccounting(sacctErr):
		return fmt.Errorf("ask accounting for job %s: %w", text.Few(missing, shownIDs), sacctErr)
	}
	return fmt.Errorf("%w %s", ErrUnknownJob, text.Few(missing, shownIDs))
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
			ID: f[0], RawID: f[1], State: f[2], Reason: f[3], EndTime: f[4], TimeLimit: f[5], Name: f[6],
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

const sacctFormat = "JobID,JobIDRaw,State,Reason,End,Timelimit,JobName"

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
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), separator, 7)
		if len(f) != 7 || !isNumber(WholeID(f[0])) {
			continue
		}
		state, _, _ := strings.Cut(f[2], " ") // "CANCELLED by 1000"
		job := JobStatus{ID: f[0], RawID: f[1], State: state, Reason: f[3], EndTime: f[4], TimeLimit: f[5], Name: f[6]}
		if job.Ended() {
			job.Reason = "" // it is why the job waited, and no reason for its end
		}
		jobs = append(jobs, job)
	}
	return jobs
}
