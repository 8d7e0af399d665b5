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

// endings are the ways to end that a job may wait for.
var endings = []string{"any", "ok", "notok"}

// Endings returns the words that After accepts after the colon.
func Endings() []string { return slices.Clone(endings) }

// After returns the condition for sbatch's --dependency that JOB of "JOB", "JOB:any", "JOB:ok" or "JOB:notok" has ended in that way. If JOB
// names a run, all of its jobs must have ended. The result is "" if that is already so, since Slurm may have forgotten the job. runs are
// the directories in which job IDs are looked up; an ID that is in none of them is a job of Slurm. clusters are those that the waiting job
// is submitted to, "" or "a,b", because Slurm's conditions work only within one cluster.
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
	if strings.Contains(name, "+") { // sbatch takes the number after it for minutes
		return "", usage.Errorf("--after %s: name the whole heterogeneous job: %s", word, slurm.WholeID(name))
	}
	name, on, isNamed := strings.Cut(name, ";")
	if isNamed && on != clusters || strings.Contains(clusters, ",") {
		return "", onAnotherCluster(word, on, clusters)
	}
	_, err = v.Slurm.On(clusters).Jobs(ctx, []string{name})
	if errors.Is(err, slurm.ErrUnknownJob) { // sbatch would not wait for it
		return "", usage.Errorf("--after %s: Slurm does not know this job, and %s has no run of it", word, v.From.Short(runs[0]))
	}
	return conditionOf(how, []string{name}, ","), err
}

// cutEnding splits the argument of --after.
func cutEnding(word string) (name, how string, err error) {
	at := strings.LastIndexByte(word, ':')
	switch {
	case at >= 0 && slices.Contains(endings, word[at+1:]):
		name, how = word[:at], word[at+1:]
	case at >= 0 && rundir.IsJobID(word[:at]):
		return "", "", usage.Errorf("--after %s: after the colon write how the job must end: any, ok or notok", word)
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
		return "", usage.Errorf("--after %s: this is not a Slurm job, but a run of %s", word, kind)
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
		return "", usage.Errorf("--after %s: this can no longer happen: the run has ended as %s", word, row.State)
	}
	between := ","
	if row.array == nil && row.Job != "" { // it may not be recorded
		ids = []string{row.Job}
	}
	if c := row.chain; c != nil {
		if ids = c.left(); how == "ok" { // a successful link cancels those after it
			between = "?"
		}
	}
	return conditionOf(how, ids, between), nil
}

// onAnotherCluster returns the error for a job on another cluster, for which Slurm cannot wait, or would take another job of that ID.
func onAnotherCluster(word, on, clusters string) error {
	name := func(clusters string) string {
		if clusters == "" {
			return "the default cluster"
		}
		return clusters
	}
	return usage.Errorf("--after %s: Slurm lets a job wait only for jobs on its own cluster: that job is on %s, but this one goes to %s",
		word, name(on), name(clusters))
}

// conditionOf returns the condition that jobs have ended in a way. between separates the conditions of the jobs.
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
