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

// parsableForm matches a line of "sbatch --parsable". It is compiled on first use: counted
// repetitions take long to compile, and most processes do not need it.
var parsableForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]{1,10}(?:;[A-Za-z0-9_.-]{1,64})?$`) })

// Submit passes the script at the absolute path to sbatch; extraArgs come before it on sbatch's command line and override
// what it asks for. Sites print greetings into sbatch's output, so the id is the last line that
// has the form of one.
//
// If the id is not zero, the job exists, even if there is an error: sbatch has printed the id, and then
// exited with another code than 0 but without a message, as it does with --wait when the job fails.
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
		return JobID{}, fmt.Errorf("submit %s: sbatch printed no job id; the job may have been submitted all the same "+
			"(\"squeue --me\" shows it); sbatch printed: %s",
			script, slurmWords(slices.Concat(out.Stdout, []byte("\n"), out.Stderr)))
	}
	return id, nil
}

// TestOnly asks Slurm whether it would accept the script, without submitting it. The answer is Slurm's own message,
// with the time and the nodes of the job. If Slurm would not accept it, the error is a [*RefusedError].
func (c *Client) TestOnly(ctx context.Context, script string, extraArgs []string) (answer string, err error) {
	out, err := c.sbatch(ctx, script, append([]string{"--test-only"}, extraArgs...))
	if err != nil {
		return "", err
	}
	if err := failure("sbatch", out); err != nil {
		return "", err
	}
	return slurmWords(out.Stderr), nil // its stdout holds at most a site's greeting
}

func (c *Client) sbatch(ctx context.Context, script string, args []string) (Output, error) {
	if !filepath.IsAbs(script) {
		// sbatch looks other names up in its PATH, and reads some as options
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

// UserJobs holds the jobs of a user, with the scripts that they were submitted with.
type UserJobs []userJob

type userJob struct {
	JobStatus
	script string
}

// UserJobs returns the jobs of a user that the controller knows. user is a number; "" means the caller. UserJobs does not ask accounting,
// because a job that only accounting knows is over.
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

// OfScript returns the jobs that were submitted with the script at an absolute path. It finds a job even if nobody has seen its id.
func (all UserJobs) OfScript(script string) []JobStatus {
	var found []JobStatus
	for _, job := range all {
		if sameFile(job.script, script) {
			found = append(found, job.JobStatus)
		}
	}
	return found
}

// sameFile reports whether two paths are equal or lead to the same file: a folder may have several names.
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

// CancelNow cancels jobs of one cluster, each of which may be one element of an array, with one command and without asking whether they
// exist. scancel prints nothing and exits with 0 if it does not know a job or the job has ended: call [Client.Jobs] first.
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
			return fmt.Errorf("cancel jobs %s and %s: they belong to two clusters; cancel them separately", first, job)
		}
		plain = append(plain, job.ID)
	}
	_, err = c.ask(ctx, "scancel", onCluster(first.Cluster, plain...)...)
	return err
}

// Requeue puts a job, or one element of an array ("12_3"), back into the queue. It starts again under the same id, with
// SLURM_RESTART_COUNT one higher. All processes of a running job get SIGTERM at once, the calling process too if it is one of them.
//
// Requeue revives a job that was canceled but whose processes are not all gone: call [Client.Facts] first.
func (c *Client) Requeue(ctx context.Context, id string) error {
	return c.control(ctx, id, "requeue", func(id string) []string { return []string{"requeue", id} })
}

// ExcludeNodes keeps a pending job from starting on the nodes of a host list, which replaces the job's previous list. Slurm accepts
// it only for pending jobs: requeue a running job first.
func (c *Client) ExcludeNodes(ctx context.Context, id, hostlist string) error {
	if err := checkWord(hostlist); err != nil || hostlist == "" {
		return fmt.Errorf("exclude nodes from job %s: %s is not a list of nodes", clip(id), clip(hostlist))
	}
	return c.control(ctx, id, "exclude nodes from", func(id string) []string {
		return []string{"update", "JobId=" + id, "ExcNodeList=" + hostlist}
	})
}

// control runs scontrol on one job; what says in an error what it was for.
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
