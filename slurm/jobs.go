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

// Jobs returns what Slurm knows about the jobs that ids name (see [ParseJobID] for their forms): for
// each id, in the order given, the job, or all parts of an array or a heterogeneous job.
//
// It asks the controller (squeue), and accounting (sacct) about jobs that the controller has forgotten. It asks each once for each cluster,
// however many jobs there are. If neither knows some id, the error matches [ErrUnknownJob] and names it, and Jobs returns
// what is known about the others as well. If the controller is down and accounting cannot help, the error matches [ErrUnreachable].
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

// jobTable is a list of jobs with an index. A nil table is empty.
type jobTable struct {
	jobs []JobStatus
	at   map[string][]int // indices into jobs, by the numbers that may name a job
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

// clusterJobs asks squeue and then sacct of one cluster. If ctx ends before all have answered, the error has its cause.
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

// open returns the ids about which accounting may know more: jobs that are not in the table, and arrays with elements that have ended, as
// the controller may have forgotten other elements.
func (t *jobTable) open(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		found := t.of(id)
		return len(found) > 0 && !slices.ContainsFunc(found, func(s JobStatus) bool { return s.Ended() && strings.Contains(s.ID, "_") })
	})
}

// supplement adds jobs that accounting knows. If the controller still knows some elements of an array, its answer is newer, so only ended
// elements of that array are added.
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

// unknown returns the error for the ids that no source knows. If a source could not be
// asked, it might have known them, so the error is why it could not answer. A
// site without accounting is not such a source.
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

// withoutAccounting reports whether an error of sacct means that the site has no accounting.
func withoutAccounting(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && strings.Contains(refused.Words, "accounting storage is disabled")
}

// separator separates the fields that squeue and sacct print. It is the unit separator, which no name, reason
// or list of nodes contains; names do contain spaces and bars.
const separator = "\x1f"

// squeueFormat asks for the fields that parseSqueue reads. The name is the last, so that it may
// contain anything.
var squeueFormat = strings.Join([]string{"%i", "%A", "%T", "%r", "%e", "%l", "%j"}, separator)

// squeue asks the controller, which knows jobs until some minutes (MinJobAge) after their
// end. If it does not know any of the ids, squeue returns an empty list and no error.
func (c *Client) squeue(ctx context.Context, cluster string, ids []string) ([]JobStatus, error) {
	out, err := c.ask(ctx, "squeue", onCluster(cluster, "-h", "-t", "all", "-j", strings.Join(ids, ","), "-o", squeueFormat)...)
	if err != nil && !errors.Is(err, ErrUnknownJob) {
		return nil, err
	}
	return parseSqueue(out), nil
}

// parseSqueue reads the lines that have all fields of squeueFormat. Other lines are a site's
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

// sacct asks the accounting database, if the site has one. It knows all jobs of the past.
// If it does not know any of the ids, sacct prints nothing and exits with 0, and there is no error.
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
			job.Reason = "" // it says why the job waited, not why it ended
		}
		jobs = append(jobs, job)
	}
	return jobs
}
