package slurm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	jobs, asked := c.squeue(ctx, cluster, ids)
	if absent(asked) {
		return nil, asked
	}
	open := openIDs(jobs, ids)
	if len(open) == 0 {
		return jobs, nil
	}
	recorded, noRecord := c.sacct(ctx, cluster, open)
	jobs = supplement(jobs, recorded)
	open = openIDs(jobs, ids)
	if asked == nil {
		for _, id := range open {
			shown, err := c.scontrol(ctx, cluster, id)
			if err != nil && !errors.Is(err, ErrUnknownJob) && !absent(err) {
				asked = err
			}
			jobs = supplement(jobs, shown)
		}
	}
	if open = openIDs(jobs, ids); len(open) > 0 && ctx.Err() != nil {
		return nil, fmt.Errorf("ask Slurm for job %s: %w: %w", strings.Join(open, ", "), ctx.Err(), context.Cause(ctx))
	}
	return jobs, unknown(jobs, ids, asked, noRecord)
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
			if m.Ended() || len(pick(first, base(m.ID))) == 0 {
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
func unknown(jobs []JobStatus, ids []string, asked, noRecord error) error {
	missing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return len(pick(jobs, id)) > 0 })
	switch {
	case len(missing) == 0:
		return nil
	case asked != nil:
		return asked
	case noRecord != nil && !absent(noRecord) && !withoutAccounting(noRecord):
		return fmt.Errorf("ask accounting for job %s: %w", strings.Join(missing, ", "), noRecord)
	}
	return fmt.Errorf("%w %s", ErrUnknownJob, strings.Join(missing, ", "))
}

// withoutAccounting tells whether sacct has nothing to ask.
func withoutAccounting(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && strings.Contains(refused.Words, "accounting storage is disabled")
}
