package runview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

// Ended tells whether a submitted job is over, and how it ended. Slurm is asked first, since scancel says nothing of such a job, or of one that
// it does not know. A job that goes on under another name was renamed, or is somebody else's, as a rebuilt cluster counts from 1 again: that is
// a usageError, since only a person can tell.
func (v *Viewer) Ended(ctx context.Context, run *rundir.Dir, id string) (how string, over bool, err error) {
	jobs, err := v.Slurm.Jobs(ctx, []string{id})
	if err != nil && !errors.Is(err, slurm.ErrUnknownJob) {
		return "", false, err
	}
	plain, _, _ := strings.Cut(id, ";") // less the cluster
	row := RunStatus{Job: plain, Name: run.Spec().Name, run: run}
	ours := row.partsIn(jobs)
	if slices.ContainsFunc(ours, func(job slurm.JobStatus) bool { return !job.Ended() }) {
		return "", false, nil
	}
	if other := slices.IndexFunc(jobs, func(job slurm.JobStatus) bool { return job.Of(plain) && !job.Ended() }); other >= 0 { // and not of ours
		return "", false, &usage.Error{
			Message: fmt.Sprintf("job %s is called %q in Slurm, and this run %q: it may be somebody else's", plain, jobs[other].Name, row.Name),
			Hint:    "if it is this run's: " + ScancelCommand(id),
		}
	}
	state := ""
	if len(ours) > 0 {
		state = worst(ours).State
	}
	return v.HowEnded(ctx, run, plain, state), true, nil
}

// HowEnded says how the job id of a run ended: its state, and what its verdict says. state is Slurm's word, "" where there is none.
func (v *Viewer) HowEnded(ctx context.Context, run *rundir.Dir, id, state string) string {
	row, err := v.Status(ctx, run)
	if err != nil {
		row = RunStatus{State: "UNKNOWN"}
	}
	judged := row.VerdictJob == id
	if row.array != nil { // of which the job may be a part
		judged = slices.Contains(row.array.IDs(), id)
		_, alone := row.array.aloneIn(id)
		row = row.OfJob(id)
		if alone && len(row.elements) > 0 {
			row = row.elements[0]
			judged = row.VerdictJob == row.Job
		}
	}
	switch {
	case state == "" && !judged:
		return "how, nobody can tell, as it left no verdict"
	case state == "":
		state = row.State
	}
	if judged && row.Message != "" {
		state += " (" + text.Clean(row.Message) + ")"
	}
	return state
}

// ScancelCommand is what a person types to cancel a job.
func ScancelCommand(id string) string {
	plain, cluster, federated := strings.Cut(id, ";")
	if federated {
		return "scancel --clusters=" + cluster + " " + plain
	}
	return "scancel " + plain
}
