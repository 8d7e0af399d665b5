package runview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

// endings are how the end may be for which a job waits.
var endings = []string{"any", "ok", "notok"}

// Endings are the words that After takes behind the colon.
func Endings() []string { return slices.Clone(endings) }

// After is the condition of sbatch's --dependency for "JOB", "JOB:any", "JOB:ok" or "JOB:notok": that a job, or all of the run that JOB is
// of, has ended so. It is "" where that is so already, which Slurm might have forgotten. runs are the folders in which job ids are looked
// up; one that is in none of them is a job that Slurm knows. clusters are those that the job which waits is submitted to, "" or "a,b":
// Slurm's conditions are of jobs on the same one.
func (v *Viewer) After(ctx context.Context, runs []string, word, clusters string) (condition string, err error) {
	name, how, err := cutEnding(word)
	if err != nil {
		return "", err
	}
	for _, folder := range runs {
		run, ids, found := v.FindJobs(folder, name)
		if found == nil {
			return v.afterRun(ctx, run, ids, word, how, clusters)
		}
		if err == nil {
			err = found
		}
	}
	if !rundir.IsJobID(name) {
		return "", err
	}
	if strings.Contains(name, "+") { // sbatch takes the number behind it for minutes
		return "", usage.Errorf("--after %s: of a heterogeneous job name the whole one: %s", word, slurm.WholeID(name))
	}
	name, on, isNamed := strings.Cut(name, ";")
	if isNamed && on != clusters || strings.Contains(clusters, ",") {
		return "", onAnotherCluster(word, on, clusters)
	}
	_, err = v.Slurm.On(clusters).Jobs(ctx, []string{name})
	if errors.Is(err, slurm.ErrUnknownJob) { // which it would not wait for
		return "", usage.Errorf("--after %s: Slurm does not know such a job, and it is none of the runs in %s", word, v.From.Short(runs[0]))
	}
	return conditionOf(how, []string{name}, ","), err
}

// cutEnding splits what --after names.
func cutEnding(word string) (name, how string, err error) {
	at := strings.LastIndexByte(word, ':')
	switch {
	case at >= 0 && slices.Contains(endings, word[at+1:]):
		name, how = word[:at], word[at+1:]
	case at >= 0 && rundir.IsJobID(word[:at]):
		return "", "", usage.Errorf("--after %s: behind the colon stands how the job is to end: any, ok or notok", word)
	default:
		name, how = word, "any"
	}
	if name == "" {
		return "", "", usage.Errorf("--after %s: name a job id or a run directory", word)
	}
	return name, how, nil
}

// afterRun is After for a run, or an element of an array, whose jobs are ids.
func (v *Viewer) afterRun(ctx context.Context, run *rundir.Dir, ids []string, word, how, clusters string) (string, error) {
	if kind := run.Spec().Kind; kind != "slurm" {
		return "", usage.Errorf("--after %s: no job of Slurm's, but a run of %s", word, kind)
	}
	if by, is, err := run.Whole().Claimed(); err == nil && is {
		return "", usage.Errorf("--after %s: another command has claimed the run: %s", word, by)
	}
	row, err := v.Status(ctx, run)
	if err != nil {
		return "", err
	}
	good := row.State == "COMPLETED"
	switch {
	case row.State == "UNSUBMITTED" || row.Job == "":
		return "", usage.Errorf("--after %s: the run has no job; see ddpbatch status %s", word, slurm.ShellQuote(v.From.Short(run.Path())))
	case row.Ended && (how == "any" || good == (how == "ok")):
		return "", nil
	case !row.Ended && row.Cluster != clusters:
		return "", onAnotherCluster(word, row.Cluster, clusters)
	case row.Ended:
		return "", usage.Errorf("--after %s: that can no longer be: the run has ended as %s", word, row.State)
	}
	between := ","
	if row.array == nil && row.Job != "" { // which may be one that nobody recorded
		ids = []string{row.Job}
	}
	if c := row.chain; c != nil {
		if ids = c.left(); how == "ok" { // the link that is done cancels those after it
			between = "?"
		}
	}
	return conditionOf(how, ids, between), nil
}

// onAnotherCluster is the error of a condition that Slurm cannot hold, or would take for that of another job.
func onAnotherCluster(word, on, clusters string) error {
	name := func(clusters string) string {
		if clusters == "" {
			return "the default cluster"
		}
		return clusters
	}
	return usage.Errorf("--after %s: Slurm lets a job wait for others of its own cluster alone: that one is on %s, and this job goes to %s",
		word, name(on), name(clusters))
}

// conditionOf is the condition that jobs have ended in a way; between stands between those of the jobs.
func conditionOf(how string, ids []string, between string) string {
	if how == "any" {
		return slurm.AfterAny(ids)
	}
	each := make([]string, len(ids))
	for i, id := range ids {
		each[i] = fmt.Sprintf("after%s:%s", how, id)
	}
	return strings.Join(each, between)
}
