package runview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// Wait waits until the job has ended. The error says how it ended, and is nil if it was successful.
func (v *Viewer) Wait(ctx context.Context, run *rundir.Dir, id string) error {
	return v.untilEnd(ctx, run, id, func() error { return nil })
}

// Follow copies the job's log as it grows, until the job has ended. The error is that of Wait.
func (v *Viewer) Follow(ctx context.Context, run *rundir.Dir, id string) error {
	if isArray(run) {
		only := id
		if run.Spec().ArraySize > 0 { // its jobs form one sweep
			only = ""
		}
		return (&arrayLog{v: v, run: run, only: only}).follow(ctx, id)
	}
	if c := chainOf(run); c != nil {
		log := v.chainLog(run, c)
		defer log.close()
		return v.untilEnd(ctx, run, id, log.copy)
	}
	tail := &tailer{path: run.SlurmLogPath(id), to: v.Out}
	defer tail.close()
	return v.untilEnd(ctx, run, id, tail.copy)
}

// untilEnd calls each repeatedly until the job has ended. If the job waits in the queue at first, a line says so. Its error has the job's
// exit code.
func (v *Viewer) untilEnd(ctx context.Context, run *rundir.Dir, id string, each func() error) error {
	ticker := time.NewTicker(logPoll)
	defer ticker.Stop()
	var asked time.Time
	began := v.Now()
	var warned bool // about the present outage
	state := ""     // when Slurm was last asked
	for {
		if err := each(); err != nil {
			return err
		}
		if v.Now().Sub(asked) >= stateEvery(v.Now().Sub(began)) {
			row, err := v.progress(ctx, run, id)
			switch {
			case err != nil && ctx.Err() != nil:
				return v.stillRuns(ctx, run, id, state)
			case errors.Is(err, slurm.ErrUnreachable):
				// the controller may be restarting, and the job runs on
				if !warned {
					v.Log.Warn("the job's state is not known at the moment", "error", err)
				}
				warned = true
			case err != nil:
				return err
			case row.Ended:
				return errors.Join(each(), endOf(id, row))
			default:
				if row.State == pending && asked.IsZero() {
					fmt.Fprintln(v.Err, waits(id, row.Reason))
				}
				state, warned = row.State, false
			}
			asked = v.Now()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return v.stillRuns(ctx, run, id, state)
		}
	}
}

// pending is Slurm's word for a job that waits in the queue.
const pending = "PENDING"

// waits says that a job waits in the queue, and why.
func waits(id, reason string) string {
	if reason == "" {
		return fmt.Sprintf("job %s waits", id)
	}
	return fmt.Sprintf("job %s waits (%s)", id, text.Clean(reason))
}

// progress returns a job's status. While an array runs it does not read the elements, of which there may be thousands.
func (v *Viewer) progress(ctx context.Context, run *rundir.Dir, id string) (RunStatus, error) {
	if isArray(run) {
		if open, err := v.arrayGoesOn(ctx, run, id); err != nil || open {
			return RunStatus{}, err
		}
	}
	row, err := v.Status(ctx, run)
	return row.ofJob(id), err
}

// arrayGoesOn reports whether parts of an array's job have not ended.
func (v *Viewer) arrayGoesOn(ctx context.Context, run *rundir.Dir, id string) (bool, error) {
	if run.Spec().Kind != "slurm" {
		return simulating(run, id), nil
	}
	ids, err := jobsNamed(run, id, id)
	if err != nil {
		return false, err
	}
	jobs, err := v.Jobs(ctx, run.Cluster(), ids)
	isOpen := func(job slurm.JobStatus) bool {
		return slices.ContainsFunc(ids, job.Of) && job.Name == run.Spec().Name && !job.Ended()
	}
	return slices.ContainsFunc(jobs, isOpen), err
}

// stillRuns returns the error for a user who stops watching a job: the job keeps running, or waiting, and the message says how to watch it
// again.
func (v *Viewer) stillRuns(ctx context.Context, run *rundir.Dir, id, state string) error {
	name, goesOn := v.jobName(run, id), "keeps running"
	if state == pending {
		goesOn = "stays in the queue"
	}
	return fmt.Errorf("%w; job %s %s\nwatch: ddpbatch logs -f %s\ncancel: ddpbatch cancel %s", context.Cause(ctx), id, goesOn, name, name)
}

// jobName returns what a user types for a job: its ID if commands find the job by that, or else its run directory.
func (v *Viewer) jobName(run *rundir.Dir, id string) string {
	if found, err := rundir.Find(v.From.Abs("runs"), id); err == nil && found.Path() == run.Path() {
		return id
	}
	return slurm.ShellQuote(v.From.Short(run.Path()))
}

// endOf turns a job's end into an error, which is nil if the job is done.
func endOf(id string, row RunStatus) error {
	if row.chain != nil { // the link that came last
		id = row.Job
	}
	switch {
	case len(row.elements) == 1:
		return row.elements[0].end()
	case len(row.elements) > 1:
		return endOfArray(id, row.elements)
	case row.VerdictJob == id && row.Exit != nil && *row.Exit != 0:
		code := *row.Exit
		if row.givenUp {
			code = exit.GivenUp(code)
		}
		sentence, log, _ := strings.Cut(row.Message, lastWords)
		message := sentence + row.failure("")
		if log != "" {
			message += lastWords + log
		}
		return &exit.Error{Code: code, Err: fmt.Errorf("job %s: %s", id, message)}
	case row.VerdictJob == id && row.Exit != nil, row.State == "COMPLETED":
		return nil
	}
	return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("job %s ended as %s: %s", id, row.State, row.why())}
}

// end is endOf for the row itself.
func (row *RunStatus) end() error { return endOf(row.Job, *row) }

// endOfArray returns the error for elements that failed, with the largest of their exit codes.
func endOfArray(id string, elements []RunStatus) error {
	const most = 20 // elements named in the message
	var failed []error
	code := 0
	for _, element := range elements {
		if err := element.end(); err != nil {
			failed = append(failed, err)
			code = max(code, codeOf(err))
		}
	}
	if len(failed) == 0 {
		return nil
	}
	lines := fmt.Sprintf("job %s: %d of %s did not end well", id, len(failed), text.Plural(len(elements), "element"))
	for _, err := range failed[:min(most, len(failed))] {
		lines += "\n  " + err.Error()
	}
	if more := len(failed) - most; more > 0 {
		lines += fmt.Sprintf("\n  and %d more", more)
	}
	return &exit.Error{Code: code, Err: errors.New(lines)}
}

// why returns what is known of the end of a job without a verdict.
func (row *RunStatus) why() string {
	if row.cancelled {
		return "it was canceled before it began"
	}
	return cmp.Or(row.Next, row.Reason, "no agent left a verdict; see ddpbatch logs "+row.logsName())
}

// logsName returns what the logs command takes for a job: for an element that has not begun, its array.
func (row *RunStatus) logsName() string {
	array, _, isElement := strings.Cut(row.Job, "_")
	if _, begun := row.run.Index(); isElement && !begun {
		return array
	}
	return row.Job
}

// How often a followed log and its job are checked. Logs are on shared file systems, where no notification of changes is possible.
const (
	logPoll   = 200 * time.Millisecond
	statePoll = time.Second
)

// stateEvery returns the pause between two questions about a job that has been followed for that long: a second at first, ten seconds after
// ten minutes. Every question is one to Slurm's controller, which many users ask.
func stateEvery(followed time.Duration) time.Duration {
	return min(max(followed/60, statePoll), 10*time.Second)
}

// codeOf returns the exit code for the end of a job or an element.
func codeOf(err error) int {
	if coded, ok := errors.AsType[*exit.Error](err); ok {
		return coded.Code
	}
	if err != nil {
		return exit.Failed
	}
	return exit.Done
}

// Ended reports whether a submitted job has ended, and how. It asks Slurm first, because scancel does not say whether a job has ended or is
// not known. A running job of another name was renamed, or is not this run's, since a rebuilt cluster counts from 1 again. That is a
// [usage.Error], because only the user can decide.
func (v *Viewer) Ended(ctx context.Context, run *rundir.Dir, id string) (how string, over bool, err error) {
	jobs, err := v.Slurm.On(run.Cluster()).Jobs(ctx, []string{id})
	if err != nil && !errors.Is(err, slurm.ErrUnknownJob) {
		return "", false, err
	}
	state, over, err := endedIn(jobs, run, id)
	if err != nil || !over {
		return "", false, err
	}
	plain, _, _ := strings.Cut(id, ";") // without the cluster
	return v.HowEnded(ctx, run, plain, state), true, nil
}

// HowEnded says how the job id of a run ended: its state, and what its verdict says. state is Slurm's state, or "" if that is not known.
func (v *Viewer) HowEnded(ctx context.Context, run *rundir.Dir, id, state string) string {
	row, err := v.Status(ctx, run)
	if err != nil {
		row = RunStatus{State: "UNKNOWN"}
	}
	judged := row.VerdictJob == id
	if row.array != nil { // of which the job may be a part
		judged = slices.Contains(row.array.ids(), id)
		alone, since := len(row.array.resumedIn(id)) == 1, row.array.resumedSince(id)
		row = row.ofJob(id)
		if alone && len(row.elements) > 0 {
			row = row.elements[0]
			judged = row.VerdictJob == row.Job
		}
		if len(since) > 0 && row.Message != "" {
			jobs := "job "
			if len(since) > 1 {
				jobs = "jobs "
			}
			row.Message = "with what was resumed since as " + jobs + strings.Join(since, ", ") + ": " + row.Message
		}
	}
	switch {
	case state == "" && !judged:
		return "how is not known, because it left no verdict"
	case state == "":
		state = row.State
	}
	if judged && row.Message != "" {
		state += " (" + text.Clean(row.Message) + ")"
	}
	return state
}
