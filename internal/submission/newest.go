package submission

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/vfs"
	"ddpbatch/slurm"
)

// Submission is what is known of the newest submission of a run, or of the array that it belongs to.
type Submission struct {
	Open  *rundir.Event    // the event whose outcome no process has recorded; nil: it is recorded
	Job   string           // the job that Slurm has accepted without its being recorded; "": none
	First bool             // no job was recorded before
	Chain bool             // further links of its chain, or of the last recorded one, are missing
	Alive *slurm.JobStatus // another job that runs the run's script, is not recorded and has not ended
	By    *rundir.Claimant // the process that is submitting now; nil: none
	Run   *rundir.Dir      // the whole run
	Asked error            // why Slurm could not be asked, if that was necessary

	Cluster string // of Job or, without one, of the last recorded job; "": the default cluster
}

// Newest looks for the job of a submission that was not recorded: first among the jobs that have begun, then in Slurm, among those that run
// the run's script. If always is set, Slurm is asked even if everything is recorded, because a user may have submitted the script by hand.
// A command that looks at several runs should use the same jobsOf for all.
func Newest(ctx context.Context, run *rundir.Dir, always bool, jobsOf UserJobs) (*Submission, error) {
	run = run.Whole()
	s := &Submission{Run: run}
	if run.Spec().Kind != "slurm" {
		return s, nil
	}
	known, err := run.Submissions()
	if err != nil && !always { // a reader should not fail because of a ledger that cannot be read
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	recorded, err := run.JobID()
	if err != nil {
		return nil, err
	}
	s.Open, s.Job, s.First = known.Open, known.Lost, len(known.Jobs) == 0
	on := clusters(run, recorded)
	s.Cluster = on[0]
	if s.Open == nil && s.First && recorded == "" { // submit was killed before it recorded anything
		s.Open = &rundir.Event{Event: rundir.EventSubmitting, Detail: rundir.EventSubmit}
	}
	s.Chain = len(known.Chain) < known.Links
	if s.Open != nil || s.Chain {
		if who, is, err := run.Claimed(); err == nil && is {
			s.By = &who
		}
	}
	if always || s.Open != nil && s.Job == "" {
		s.Asked = s.ask(ctx, jobsOf, on, func(id string) bool {
			return known.Known(id) || s.Open == nil && id == recorded || slices.Contains(known.TooLate, id)
		})
	}
	if s.Open != nil && s.Job == "" && recorded != "" && !known.Known(recorded) {
		s.Job, s.Asked = recorded, nil // the submitting command was killed before it wrote to the ledger
	}
	return s, nil
}

// JobID returns Job with its cluster.
func (s *Submission) JobID() slurm.JobID { return slurm.JobID{ID: s.Job, Cluster: s.Cluster} }

// clusters returns the clusters on which a job of a run may be. recorded is the run's newest job, or "". The cluster of the newest job
// comes first.
func clusters(run *rundir.Dir, recorded string) []string {
	var all []string
	if recorded != "" {
		all = append(all, run.Cluster())
	}
	for name := range strings.SplitSeq(run.Spec().Clusters, ",") {
		if !slices.Contains(all, name) && (name != "" || len(all) == 0) {
			all = append(all, name)
		}
	}
	return all
}

// ask asks clusters for jobs that run the run's script and are not known.
func (s *Submission) ask(ctx context.Context, jobsOf UserJobs, clusters []string, known func(id string) bool) error {
	user := "" // the user who runs this process
	info, err := os.Lstat(s.Run.Path())
	if err != nil {
		return fmt.Errorf("read the owner of the run: %w", err)
	}
	if owner := vfs.Owner(info); owner >= 0 && owner != os.Geteuid() {
		user = strconv.Itoa(owner)
	}
	var jobs []foundJob
	for _, cluster := range clusters {
		all, err := jobsOf(ctx, cluster, user)
		if err != nil {
			return err
		}
		for _, job := range all.OfScript(s.Run.ScriptPath()) {
			if !known(slurm.WholeID(job.ID)) {
				jobs = append(jobs, foundJob{job, cluster})
			}
		}
	}
	slices.SortStableFunc(jobs, func(a, b foundJob) int { // those that have not ended first, newest first among these
		return cmp.Or(endedLast(a.JobStatus)-endedLast(b.JobStatus),
			cmp.Compare(jobNumber(slurm.WholeID(b.ID)), jobNumber(slurm.WholeID(a.ID))))
	})
	if s.Open != nil && s.Job == "" && len(jobs) > 0 {
		s.Job, s.Cluster = slurm.WholeID(jobs[0].ID), jobs[0].cluster
	}
	for _, job := range jobs {
		if (slurm.WholeID(job.ID) != s.Job || job.cluster != s.Cluster) && !job.Ended() {
			s.Alive = &job.JobStatus
			break
		}
	}
	return nil
}

// foundJob is a job that runs the run's script, on a cluster.
type foundJob struct {
	slurm.JobStatus
	cluster string
}

// UserJobs returns the jobs of a user on a cluster. The user is named as Slurm's commands accept it.
type UserJobs func(ctx context.Context, cluster, user string) (slurm.UserJobs, error)

// AskUserJobs returns a function that asks each cluster once for each user. It is safe for concurrent use.
func AskUserJobs(client *slurm.Client) UserJobs {
	type answer struct {
		jobs slurm.UserJobs
		err  error
	}
	var mu sync.Mutex // held while asking: others wait for the answer
	answers := map[[2]string]answer{}
	return func(ctx context.Context, cluster, user string) (slurm.UserJobs, error) {
		mu.Lock()
		defer mu.Unlock()
		key := [2]string{cluster, user}
		a, asked := answers[key]
		if !asked {
			a.jobs, a.err = client.On(cluster).UserJobs(ctx, user)
			answers[key] = a
		}
		return a.jobs, a.err
	}
}

func jobNumber(id string) int {
	n, _ := strconv.Atoi(id)
	return n
}

// endedLast returns 1 for a job that has ended, and otherwise 0.
func endedLast(job slurm.JobStatus) int {
	if job.Ended() {
		return 1
	}
	return 0
}
