package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// parsableForm is a line of "sbatch --parsable". Counted
// repetitions take long to compile, and most processes never ask.
var parsableForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]{1,10}(?:;[A-Za-z0-9_.-]{1,64})?$`) })

// Submit hands the script at the absolute path to sbatch; extraArgs stand before it and override
// what it asks for. Sites print greetings into sbatch's output, so the id is the last line that
// has the form of one.
//
// Where the id is not zero, the job exists, even beside an error: sbatch has told the id, and then
// ended with an exit code but without a complaint, as it does with --wait when the job fails.
func (c *Client) Submit(ctx context.Context, script string, extraArgs []string) (JobID, error) {
	out, err := c.sbatch(ctx, script, append([]string{"--parsable"}, extraArgs...))
	if err != nil {
		return JobID{}, err
	}
	id, found := parseParsable(out.Stdout)
	switch err := failure("sbatch", out); {
	case err != nil && found && slurmWords(out.Stderr) == "":
		return id, fmt.Errorf("job %s was submitted, but then sbatch ended with exit code %d", id, out.Code)
	case err != nil:
		return JobID{}, err
	case !found:
		return JobID{}, fmt.Errorf("submit %s: sbatch told no job id; a job may exist all the same, \"squeue --me\" "+
			"shows it; sbatch's words: %s",
			script, slurmWords(slices.Concat(out.Stdout, []byte("\n"), out.Stderr)))
	}
	return id, nil
}

// TestOnly asks Slurm whether it would take the script, and submits nothing; the answer is Slurm's own,
// with the time and the nodes that it would give. A [*RefusedError] says why it would not.
func (c *Client) TestOnly(ctx context.Context, script string, extraArgs []string) (answer string, err error) {
	out, err := c.sbatch(ctx, script, append([]string{"--test-only"}, extraArgs...))
	if err != nil {
		return "", err
	}
	if err := failure("sbatch", out); err != nil {
		return "", err
	}
	return slurmWords(out.Stderr), nil // its stdout is empty but for a site's greeting
}

func (c *Client) sbatch(ctx context.Context, script string, args []string) (Output, error) {
	if !filepath.IsAbs(script) {
		// sbatch looks other names up in its PATH, and takes some for options
		return Output{}, fmt.Errorf("submit %s: the script's path must be absolute", clip(script))
	}
	return c.run(ctx, "sbatch", append(args, script)...)
}

// parseParsable finds the job id in the output of "sbatch --parsable".
func parseParsable(stdout []byte) (id JobID, found bool) {
	for line := range strings.Lines(string(stdout)) {
		line = strings.TrimSpace(line)
		if parsableForm().MatchString(line) {
			id.ID, id.Cluster, _ = strings.Cut(line, ";")
			found = true
		}
	}
	return id, found
}

// UserJobs are the jobs of a user, with the scripts that they were submitted with.
type UserJobs []userJob

type userJob struct {
	JobStatus
	script string
}

// UserJobs returns the jobs of a user that the controller knows. user is a number; "" means the caller. Accounting is not asked, because
// a job that only accounting knows is over.
func (c *Client) UserJobs(ctx context.Context, user string) (UserJobs, error) {
	whose := "--me"
	if user != "" {
		whose = "--users=" + user
	}
	out, err := c.ask(ctx, "squeue", "-h", "-t", "all", whose, "-o", "%o"+separator+squeueFormat)
	if err != nil && !errors.Is(err, ErrUnknownJob) {
		return nil, err
	}
	var all UserJobs
	for line := range strings.Lines(string(out)) {
		script, rest, _ := strings.Cut(line, separator)
		for _, job := range parseSqueue([]byte(rest)) {
			all = append(all, userJob{job, strings.TrimSpace(script)})
		}
	}
	return all, nil
}

// OfScript returns the jobs that were submitted with the script at an absolute path. So a job is found even if nobody saw its id.
func (all UserJobs) OfScript(script string) []JobStatus {
	var found []JobStatus
	for _, job := range all {
		if sameFile(job.script, script) {
			found = append(found, job.JobStatus)
		}
	}
	return found
}

// sameFile reports whether two paths are one, or lead to one file: a folder may have several names.
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

// CancelNow ends jobs of one cluster, each of which may be one element of an array, with one command and no question before it. scancel
// says nothing, and exits with 0, where it does not know a job, or that has ended already: ask [Client.Jobs] first.
func (c *Client) CancelNow(ctx context.Context, id string, more ...string) error {
	first, err := ParseJobID(id)
	if err != nil {
		return err
	}
	plain := []string{first.ID}
	for _, id := range more {
		job, err := ParseJobID(id)
		switch {
		case err != nil:
			return err
		case cmp.Or(job.Cluster, c.clusters) != cmp.Or(first.Cluster, c.clusters):
			return fmt.Errorf("cancel jobs %s and %s: they are of two clusters", first, job)
		}
		plain = append(plain, job.ID)
	}
	_, err = c.ask(ctx, "scancel", onCluster(first.Cluster, plain...)...)
	return err
}

// Requeue puts a job, or one element of an array ("12_3"), back into the queue: it starts again under the same id, and with
// SLURM_RESTART_COUNT one higher. A running job's processes get SIGTERM at once, the one that asks too.
//
// A job that was cancelled, and whose processes are not all gone, is revived by this: ask [Client.Facts] first.
func (c *Client) Requeue(ctx context.Context, id string) error {
	return c.control(ctx, id, "requeue", func(id string) []string { return []string{"requeue", id} })
}

// ExcludeNodes keeps a pending job from starting on the nodes of a folded list, which replaces the one that it has. Slurm takes
// it for pending jobs only: of a running one, right after it was requeued.
func (c *Client) ExcludeNodes(ctx context.Context, id, hostlist string) error {
	if err := checkWord(hostlist); err != nil || hostlist == "" {
		return fmt.Errorf("exclude nodes from job %s: %s is no list of nodes", clip(id), clip(hostlist))
	}
	return c.control(ctx, id, "exclude nodes from", func(id string) []string {
		return []string{"update", "JobId=" + id, "ExcNodeList=" + hostlist}
	})
}

// control has scontrol do something to one job.
func (c *Client) control(ctx context.Context, id, what string, args func(id string) []string) error {
	job, err := ParseJobID(id)
	if err != nil {
		return err
	}
	if _, err := c.ask(ctx, "scontrol", onCluster(job.Cluster, args(job.ID)...)...); err != nil {
		return fmt.Errorf("%s job %s: %w", what, job.ID, err)
	}
	return nil
}

// NotRequeueable reports whether a requeue was refused because the job was submitted so that it cannot be (sbatch
// --no-requeue, or JobRequeue=0 in slurm.conf).
func NotRequeueable(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && strings.Contains(refused.Words, "presently disabled")
}
