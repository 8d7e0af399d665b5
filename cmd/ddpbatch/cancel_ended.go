package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ddpbatch/internal/rundir"
	"ddpbatch/slurm"
)

// ended tells whether a submitted job is over, and how it ended. Slurm is asked first, since scancel says nothing of such a job, or of one that
// it does not know. A job that goes on under another name was renamed, or is somebody else's, as a rebuilt cluster counts from 1 again: that is
// a usageError, since only a person can tell.
func ended(ctx context.Context, e *env, run *rundir.Dir, id string) (how string, over bool, err error) {
	client, _ := newSlurmClient(e)
	jobs, err := client.Jobs(ctx, []string{id})
	if err != nil && !errors.Is(err, slurm.ErrUnknownJob) {
		return "", false, err
	}
	plain, _, _ := strings.Cut(id, ";") // less the cluster
	row := jobStatus{Job: plain, Name: run.Spec().Name, run: run}
	ours := row.partsIn(jobs)
	if slices.ContainsFunc(ours, func(job slurm.JobStatus) bool { return !job.Ended() }) {
		return "", false, nil
	}
	if other := slices.IndexFunc(jobs, func(job slurm.JobStatus) bool { return job.Of(plain) && !job.Ended() }); other >= 0 { // and not of ours
		return "", false, &usageError{
			message: fmt.Sprintf("job %s is called %q in Slurm, and this run %q: it may be somebody else's", plain, jobs[other].Name, row.Name),
			hint:    "if it is this run's: " + scancelCommand(id),
		}
	}
	state := ""
	if len(ours) > 0 {
		state = worst(ours).State
	}
	return howEnded(ctx, e, run, plain, state), true, nil
}

// howEnded says how the job id of a run ended: its state, and what its verdict says. state is Slurm's word, "" where there is none.
func howEnded(ctx context.Context, e *env, run *rundir.Dir, id, state string) string {
	row, err := statusOf(ctx, e, run)
	if err != nil {
		row = jobStatus{State: "UNKNOWN"}
	}
	told := row.VerdictJob == id
	if row.array != nil { // of which the job may be a part
		told = slices.Contains(row.array.IDs(), id)
		_, alone := row.array.aloneIn(id)
		row = row.ofJob(id)
		if alone && len(row.elements) > 0 {
			row = row.elements[0]
			told = row.VerdictJob == row.Job
		}
	}
	switch {
	case state == "" && !told:
		return "how, nobody can tell, as it left no verdict"
	case state == "":
		state = row.State
	}
	if told && row.Message != "" {
		state += " (" + clean(row.Message) + ")"
	}
	return state
}

// scancelCommand is what a person types to cancel a job.
func scancelCommand(id string) string {
	plain, cluster, federated := strings.Cut(id, ";")
	if federated {
		return "scancel --clusters=" + cluster + " " + plain
	}
	return "scancel " + plain
}

// alreadyEnded is the error of a cancel that came too late.
func alreadyEnded(id, how string) error {
	return &usageError{message: fmt.Sprintf("job %s has ended already: %s", id, how), hint: "there is nothing to cancel"}
}
