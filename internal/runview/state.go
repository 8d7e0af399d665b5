package runview

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/text"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

// addState takes the state from Slurm, or from the verdict if Slurm does not know the job any more.
func (row *RunStatus) addState(jobs []slurm.JobStatus) {
	if ours := row.partsIn(jobs); row.submitted() && len(ours) > 0 {
		row.takeState(worst(ours))
		return
	}
	if row.Ended = true; !row.Simulated {
		row.Speed, row.Stragglers = nil, nil
	}
	switch {
	case row.Simulated: // also between two attempts
		row.State, row.Ended = "RUNNING", false
	case row.cancelled || row.dropped(jobs): // of a running array, Slurm forgets it at once
		row.State, row.cancelled = "CANCELLED", true
		why := canceledBefore
		if row.isElement() && !row.hasLog() {
			why = canceledWaiting
		}
		row.Next = row.canceled(why)
		row.forgetWhatIsOlder()
	case row.Exit == nil:
		row.State = "UNKNOWN"
		if row.submitted() && row.Next == "" && !row.isElement() {
			row.Next = row.forgotten()
		}
	default:
		row.State = stateOf(*row.Exit, row.saved, recovery.Cause(row.Cause))
		if !row.waits || row.isElement() && row.State != "COMPLETED" {
			return
		}
		if row.unasked {
			row.Next = row.forgotten() + row.lastAttempt()
		} else {
			row.Next = fmt.Sprintf("job %s has left nothing, and Slurm does not know it: ddpbatch resume %s", row.Job,
				slurm.ShellQuote(row.run.Whole().Path())) + row.lastAttempt()
		}
		if row.State == "COMPLETED" { // it has more to do
			row.forgetEnd()
			row.State = "UNKNOWN"
		}
	}
}

// Why a job that Slurm, or the ledger, calls canceled left nothing.
const (
	canceledWaiting = "canceled while it waited"
	canceledBefore  = "canceled before an attempt began"
	canceledAgain   = "canceled before it began again"
)

// canceled returns why, with how the last attempt ended if the job has begun none. A job that was requeued has its own.
func (row *RunStatus) canceled(why string) string {
	if why == canceledBefore && !row.waits && row.Attempt > 0 {
		why = canceledAgain
	}
	return why + row.lastAttempt()
}

// forgotten says what can be known of a job that Slurm does not know any more, and that left no verdict.
func (row *RunStatus) forgotten() string {
	if row.unasked {
		return fmt.Sprintf("only Slurm knows about job %s, and its commands are not installed here", row.Job)
	}
	if row.Attempt > 0 && !row.waits {
		return fmt.Sprintf("Slurm no longer knows job %s, and its attempt %d left no verdict: see ddpbatch logs %s", row.Job, row.Attempt,
			row.logsName())
	}
	return fmt.Sprintf("Slurm no longer knows job %s, and it left no result: canceled before it began, or lost", row.Job)
}

// lastAttempt says how the attempt of an earlier job ended, to be added to what is known of the newest job, or "".
func (row *RunStatus) lastAttempt() string {
	sentence, _, _ := strings.Cut(row.Message, lastWords)
	if !row.waits || sentence == "" || row.isElement() {
		return ""
	}
	if row.Error != "" {
		sentence += ": " + row.Error
	}
	return fmt.Sprintf("; attempt %d, before it: %s", row.Attempt, sentence)
}

// forgetWhatIsOlder is forgetEnd for a job that has not begun.
func (row *RunStatus) forgetWhatIsOlder() {
	if row.waits || row.unbegun {
		row.forgetEnd()
	}
}

// takeState takes the state from what Slurm knows of the job. If the job has not begun, the results of the previous attempt are not its
// end.
func (row *RunStatus) takeState(job slurm.JobStatus) {
	waiting := canceledWaiting
	if job.Reason != "" {
		waiting += " (" + job.Reason + ")"
	}
	waited, notBegun := row.canceled(waiting), row.canceled(canceledBefore)
	begun := row.Attempt > 0 && !row.waits && !row.unbegun && !row.requeued
	row.forgetWhatIsOlder()
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
	switch {
	case row.State != "CANCELLED" || begun:
	case row.Reason != "": // why it waited; Slurm leaves that as it is
		row.Reason, row.Next = "", waited
	case row.waits || row.requeued || row.unbegun:
		row.Next = notBegun
	}
	if row.Ended && row.Next == "" {
		row.Next = row.noVerdictHint()
	}
}

// forgetEnd removes the end of an attempt that does not belong to the row's job.
func (row *RunStatus) forgetEnd() {
	row.Exit, row.Cause, row.Message, row.saved = nil, "", "", false
	row.Error, row.Class, row.Advice = "", "", ""
}

// lastWords begins the part of a verdict's message that names the log of the rank that failed.
const lastWords = "; its last words are in "

// savedAndCanceled is the ending of an attempt that a person canceled, and whose ranks saved before they stopped.
const savedAndCanceled = "canceled; the ranks had saved"

// Ending says how the newest attempt of the job ended: the first sentence of its verdict, the error of the rank that failed first, and what
// to do about it, unless Next says that. It returns "" if the attempt has not ended, or if that is not known.
func (row *RunStatus) Ending() string {
	if row.VerdictJob != "" && !(slurm.JobStatus{ID: row.Job}).Of(row.VerdictJob) { // an attempt of another job
		return ""
	}
	if row.saved && recovery.Cause(row.Cause) == recovery.Cancelled {
		return savedAndCanceled
	}
	sentence, _, _ := strings.Cut(row.Message, lastWords)
	return sentence + row.failure(row.Next)
}

// Why says how the job's newest attempt ended, and what follows. If neither is known it returns Slurm's reason. For a running job it names
// the ranks that are slower than the others or, if there are none, says why the attempt before ended.
func (row *RunStatus) Why() string {
	ending := row.Ending()
	if len(row.Stragglers) > 0 && row.Next == "" && row.State == "RUNNING" {
		return text.Few(row.Stragglers, 2)
	}
	if ending == "" || row.Next == "" || ending == savedAndCanceled { // which says why nothing follows
		return cmp.Or(ending, row.Next, row.Reason, row.Before())
	}
	return ending + "; " + row.Next
}

// Before says why the attempt before the one that runs ended: "attempt 1: timeout". It returns "" if no attempt runs, or only the first.
func (row *RunStatus) Before() string {
	if row.State != "RUNNING" || row.Exit != nil || row.before == "" {
		return ""
	}
	return fmt.Sprintf("attempt %d: %s", row.Attempt-1, row.before)
}

// failure returns what follows the first sentence of a verdict: the error of the rank that failed first, and what to do about it, unless
// said says that.
func (row *RunStatus) failure(said string) (text string) {
	if row.Error != "" {
		text = ": " + row.Error
	}
	if row.Advice != "" && !strings.Contains(said, row.Advice) {
		text += " (hint: " + row.Advice + ")"
	}
	return text
}

// partsIn returns those of jobs that belong to this run's job. A job of another name does not, because a rebuilt cluster counts from 1
// again.
func (row *RunStatus) partsIn(jobs []slurm.JobStatus) (ours []slurm.JobStatus) {
	array, _, isElement := strings.Cut(row.Job, "_")
	var rest []slurm.JobStatus
	for _, job := range jobs {
		switch {
		case job.Name != row.Name:
		case job.Of(row.Job):
			ours = append(ours, job)
		case isElement && job.ID == array: // in a canceled array, all elements that had not begun
			rest = append(rest, job)
		}
	}
	if len(ours) == 0 {
		return rest
	}
	return ours
}

// worst returns the part that stands for a job of several parts: one that has not ended, or else one that failed, if there is any.
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

// stateOf returns Slurm's word for the end of a job that Slurm does not know any more. SAVED is our own word, for a job that stopped in
// time and waits to be resumed.
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

// noVerdictHint explains why a submitted job may have failed without a verdict: usually the run directory could not be written to. It
// returns "" in other cases.
func (row *RunStatus) noVerdictHint() string {
	switch {
	case row.State == "COMPLETED", row.State == "CANCELLED":
		return ""
	case row.Exit != nil && (slurm.JobStatus{ID: row.Job}).Of(row.VerdictJob):
		return ""
	}
	why := "the job left no verdict: check that the run directory exists on the job's nodes, that it is writable, and that its " +
		"file system is not full; ddpbatch logs " + row.logsName() + " shows the output"
	if strings.EqualFold(row.Reason, "JobLaunchFailure") {
		why = "Slurm could not start the batch script, or could not create its log (JobLaunchFailure): the run directory must " +
			"exist on the job's nodes and be writable"
	}
	return why
}

// dropped reports whether Slurm knows the array of an element that has not begun, but not the element. That is so after scancel has removed
// it from the queue. An element whose batch script began has left a log.
func (row *RunStatus) dropped(jobs []slurm.JobStatus) bool {
	if !row.unbegun || row.hasLog() {
		return false
	}
	array, _, _ := strings.Cut(row.Job, "_")
	return slices.ContainsFunc(jobs, func(job slurm.JobStatus) bool { return job.Of(array) && job.Name == row.Name })
}

// hasLog reports whether the job has a log, which Slurm creates when the batch script begins. It returns true if that is not known.
func (row *RunStatus) hasLog() bool {
	_, err := os.Lstat(row.run.SlurmLogPath(row.Job))
	return !errors.Is(err, fs.ErrNotExist)
}

// Finished reports whether the run has finished its work.
func (row *RunStatus) Finished() bool {
	if row.Attempt == 0 || row.Exit == nil || *row.Exit != 0 || row.waits || row.unbegun ||
		slices.ContainsFunc(row.elements, func(element RunStatus) bool { return element.waits }) {
		return false
	}
	trial := row.run.Spec().Before // of a resume --set with which no attempt has run
	if trial == nil || trial.Element == nil {
		return trial == nil
	}
	index, isElement := row.run.Index()
	return !isElement || index != *trial.Element
}
