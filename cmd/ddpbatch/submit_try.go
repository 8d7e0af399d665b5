package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/submission"
	"ddpbatch/slurm"
)

// sbatchCommand returns the command that submits a run's script.
func sbatchCommand(clusters string, words []string) []string {
	command := []string{"sbatch"}
	if clusters != "" {
		command = append(command, "--clusters="+clusters)
	}
	return slices.Concat(command, []string{"--parsable"}, words, []string{"script.sh"})
}

// laterClusters returns a placeholder for the cluster that sbatch chooses for the first job.
func laterClusters(clusters string) string {
	if strings.Contains(clusters, ",") {
		return "CLUSTER"
	}
	return clusters
}

// trySubmit shows what submit would do.
func trySubmit(ctx context.Context, e *env, job *jobfile.Job, template string, order submission.Order, o submitOptions) error {
	script, err := renderScript(job, unnamedRun(job), template, order.Words)
	if err != nil {
		return err
	}
	words := slices.Concat(order.Words, order.First)
	firstWords := words
	if len(order.Pieces) > 0 {
		firstWords = slices.Concat(order.Pieces[0].Words, words)
	}
	if o.dryRun {
		shown := blankScript(e, script)
		first := sbatchCommand(order.Clusters, firstWords)
		var later []string // of a chain
		if order.Links > 1 {
			later = sbatchCommand(laterClusters(order.Clusters), append(slices.Clone(order.Words), "--dependency=afterany:ID:..."))
		}
		if e.reply != nil {
			return printJSON(e, scriptReply{unsubmittedReply(e, job, o.sets, firstWords), shown, redact.Words(first), redact.Words(later)})
		}
		fmt.Fprint(e.Out, shown)
		fmt.Fprintf(e.Err, "would run: %s\n", redact.Text(slurm.ShellJoin(first)))
		if order.Links > 1 {
			fmt.Fprintf(e.Err, "and for each of the chain's %d other links, with the ids of all links before it: %s\n",
				order.Links-1, redact.Text(slurm.ShellJoin(later)))
		}
		return nil
	}
	dir, err := os.MkdirTemp("", "ddpbatch-test-only-")
	if err != nil {
		return fmt.Errorf("make a folder for the script: %w", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "script.sh")
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		return fmt.Errorf("write the script: %w", err)
	}
	answer, err := e.submitEnv().Slurm.On(order.Clusters).TestOnly(ctx, path, firstWords)
	if err != nil {
		return err
	}
	if e.reply != nil {
		reply := unsubmittedReply(e, job, o.sets, words)
		reply.Asked = reply.Asked.withArrays(order.Pieces)
		return printJSON(e, struct {
			jobReply
			Answer string `json:"answer"` // Slurm's
		}{reply, answer})
	}
	fmt.Fprintln(e.Out, answer)
	if n := len(order.Pieces); n > 0 {
		fmt.Fprintf(e.Out, "this is the first of the %d arrays as which the sweep is submitted\n", n)
	}
	if order.Links > 1 {
		fmt.Fprintf(e.Out, "this is the first of %d links; each of the others requests the same after those before it have ended\n",
			order.Links)
	}
	return nil
}
