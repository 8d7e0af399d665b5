package runview

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"ddpbatch/internal/exit"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

// addState takes Slurm's word; of a job that Slurm does not know any more, the verdict tells.
func (row *RunStatus) addState(jobs []slurm.JobStatus) {
	if ours := row.partsIn(jobs); row.submitted() && len(ours) > 0 {
		row.takeState(worst(ours))
		return
	}
	if row.Ended = true; !row.Simulated {
		row.Speed, row.Stragglers = nil, nil
	}
	switch {
	case row.Simulated: // between two attempts, too
		row.State, row.Ended = "RUNNING", false
	case row.cancelled || row.dropped(jobs): // of an array that goes on, Slurm forgets it at once
		row.State, row.cancelled = "CANCELLED", true
	case row.Exit == nil:
		row.State = "UNKNOWN"
	default:
		row.State = stateOf(*row.Exit, row.saved, recovery.Cause(row.Cause))
		if row.State == "COMPLETED" && row.waits { // to do more than that
			row.forgetEnd()
			row.State = "UNKNOWN"
			row.Next = fmt.Sprintf("job %s has left nothing, and Slurm does not know it: ddpbatch resume %s", row.Job,
				slurm.ShellQuote(row.run.Whole().Path()))
		}
	}
}

// takeState takes the state of what Slurm knows of the job. Where that has not begun, what the attempt before left is not its end.
func (row *RunStatus) takeState(job slurm.JobStatus) {
	if row.waits || row.unbegun {
		row.forgetEnd()
	}
	row.Reported = true
	row.State, row.Reason, row.Ended = job.State, job.Reason, job.Ended()
	if ends := job.Ends(); !ends.IsZero() {
		row.Ends = &ends
	}
	if !job.Running() {
		row.Speed, row.Stragglers = nil, nil
	}
	if strings.EqualFold(row.Reason, "none") {
		row.Reason = ""
	}
	if row.Ended && row.Next == "" {
		row.Next = row.noVerdictHint()
	}
}

// forgetEnd leaves out how an attempt ended that is not of the row's job.
func (row *RunStatus) forgetEnd() {
	row.Exit, row.Cause, row.Message, row.saved = nil, "", "", false
	row.Error, row.Class, row.Advice = "", "", ""
}

// Ending says how the newest attempt of the job ended: the first sentence of its verdict, and what the rank that failed first said was
// wrong. Empty: it has not ended, or nobody knows.
func (row *RunStatus) Ending() string {
	if row.VerdictJob != "" && !(slurm.JobStatus{ID: row.Job}).Of(row.VerdictJob) { // an attempt of another job
		return ""
	}
	sentence, _, _ := strings.Cut(row.Message, "; its last words are in ")
	if row.Error == "" {
		return sentence
	}
	return sentence + ": " + row.Error
}

// partsIn are those of jobs that are this one. A job of another name is not this run's: a rebuilt cluster counts from 1 again.
func (row *RunStatus) partsIn(jobs []slurm.JobStatus) (ours []slurm.JobStatus) {
	array, _, isElement := strings.Cut(row.Job, "_")
	var rest []slurm.JobStatus
	for _, job := range jobs {
		switch {
		case job.Name != row.Name:
		case job.Of(row.Job):
			ours = append(ours, job)
		case isElement && job.ID == array: // of an array that was cancelled, all that had not begun
			rest = append(rest, job)
		}
	}
	if len(ours) == 0 {
		return rest
	}
	return ours
}

// worst is what a job of several parts counts as: a part that is not over yet, or else one that
// did not end well, where there is one.
func worst(jobs []slurm.JobStatus) slurm.JobStatus {
	found := jobs[0]
	for _, job := range jobs {
		switch {
		case !job.Ended():
			return job
		case job.State != "COMPLETED":
			found = job
		}
	}
	return found
}

// stateOf is what Slurm would call the end of a job that it knows nothing of; SAVED is ours, for one that stopped in time and waits to be
// resumed.
func stateOf(code int, saved bool, cause recovery.Cause) string {
	switch {
	case code == exit.Done:
		return "COMPLETED"
	case cause == recovery.Cancelled:
		return "CANCELLED"
	case cause == recovery.Preempt:
		return "PREEMPTED"
	case cause == recovery.Timeout && code != exit.Timeout:
		return "TIMEOUT"
	case code == exit.Requeue && saved:
		return "SAVED"
	case cause == recovery.Node:
		return "NODE_FAIL"
	case cause == recovery.OOM:
		return "OUT_OF_MEMORY"
	}
	return "FAILED"
}

// noVerdictHint says what may be wrong where a submitted job has ended badly, and nothing in its run directory tells how: most often that
// could not be written to. "" where that is not so.
func (row *RunStatus) noVerdictHint() string {
	switch {
	case row.State == "COMPLETED", row.State == "CANCELLED":
		return ""
	case row.Exit != nil && (slurm.JobStatus{ID: row.Job}).Of(row.VerdictJob):
		return ""
	}
	why := "no verdict was left: is the run directory there on the job's nodes, writable, and its file system not full? ddpbatch logs " +
		row.logsName() +
		" shows what was said"
	if strings.EqualFold(row.Reason, "JobLaunchFailure") {
		why = "Slurm could not start the batch script, or not make its log (JobLaunchFailure): the run directory must be " +
			"there on the job's nodes, " +
			"and writable"
	}
	return why
}

// dropped reports whether Slurm knows the array of an element that has not begun, and not the element, as it does once scancel has taken
// one out of the queue. One whose batch script began has left a log.
func (row *RunStatus) dropped(jobs []slurm.JobStatus) bool {
	if !row.unbegun {
		return false
	}
	if _, err := os.Lstat(row.run.SlurmLogPath(row.Job)); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	array, _, _ := strings.Cut(row.Job, "_")
	return slices.ContainsFunc(jobs, func(job slurm.JobStatus) bool { return job.Of(array) && job.Name == row.Name })
}

// Finished reports whether the run has done what it was to do.
func (row *RunStatus) Finished() bool {
	if row.Attempt == 0 || row.Exit == nil || *row.Exit != 0 || row.waits || row.unbegun ||
		slices.ContainsFunc(row.elements, func(element RunStatus) bool { return element.waits }) {
		return false
	}
	trial := row.run.Spec().Before // of a resume --set that no attempt has run with
	if trial == nil || trial.Element == nil {
		return trial == nil
	}
	index, isElement := row.run.Index()
	return !isElement || index != *trial.Element
}
