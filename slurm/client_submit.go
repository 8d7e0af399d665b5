package slurm

import (
	"context"
	"fmt"
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
		return JobID{}, fmt.Errorf("submit %s: sbatch told no job id; a job may exist all the same, \"squeue --me\" shows it; sbatch's words: %s",
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
