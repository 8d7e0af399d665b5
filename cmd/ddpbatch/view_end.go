package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/slurm"
)

// afterSubmit does what --wait and --follow ask for.
func afterSubmit(ctx context.Context, e *env, run *rundir.Dir, id string, wait, followIt bool) error {
	switch {
	case followIt:
		return follow(ctx, e, run, id)
	case wait:
		return untilEnd(ctx, e, run, id, func() error { return nil })
	}
	return nil
}

// follow copies the job's log as it grows, until the job has ended, and returns how it
// ended.
func follow(ctx context.Context, e *env, run *rundir.Dir, id string) error {
	if isArray(run) {
		a := newArrayLog(e, run)
		a.only = id
		return a.follow(ctx, id)
	}
	tail := &tailer{path: run.SlurmLogPath(id), to: e.Out}
	defer tail.close()
	return untilEnd(ctx, e, run, id, tail.copy)
}

// untilEnd calls each again and again until the job has ended; its error carries the
// job's exit code.
func untilEnd(ctx context.Context, e *env, run *rundir.Dir, id string, each func() error) error {
	ticker := time.NewTicker(logPoll)
	defer ticker.Stop()
	var asked time.Time
	var warned bool
	for {
		if err := each(); err != nil {
			return err
		}
		if e.Now().Sub(asked) >= statePoll {
			row, err := howFar(ctx, e, run, id)
			switch {
			case err != nil && ctx.Err() != nil:
				return goesOn(ctx, e, run, id)
			case errors.Is(err, slurm.ErrUnreachable):
				// a controller is restarted now and then, and the job runs on
				if !warned {
					e.log().Warn("the job's state is not known for now", "error", err)
				}
				warned = true
			case err != nil:
				return err
			case row.Ended:
				return errors.Join(each(), endOf(id, row))
			}
			asked = e.Now()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return goesOn(ctx, e, run, id)
		}
	}
}

// howFar is a job's status. While an array goes on its elements, which may be a thousand, are not looked at.
func howFar(ctx context.Context, e *env, run *rundir.Dir, id string) (jobStatus, error) {
	if isArray(run) {
		if goesOn, err := arrayGoesOn(ctx, e, run, id); err != nil || goesOn {
			return jobStatus{}, err
		}
	}
	row, err := statusOf(ctx, e, run)
	return row.ofJob(id), err
}

// arrayGoesOn tells whether a job of an array has parts that have not ended.
func arrayGoesOn(ctx context.Context, e *env, run *rundir.Dir, id string) (bool, error) {
	if run.Spec().Kind != "slurm" {
		return simulating(run, id), nil
	}
	jobs, err := askSlurm(ctx, e, []string{id})
	return slices.ContainsFunc(jobs, func(job slurm.JobStatus) bool { return job.Of(id) && job.Name == run.Spec().Name && !job.Ended() }), err
}

// goesOn is the error of who stops watching a job: nothing happens to that, and here is how to come back to it.
func goesOn(ctx context.Context, e *env, run *rundir.Dir, id string) error {
	name := jobName(e, run, id)
	return fmt.Errorf("%w; job %s goes on\nwatch: ddpbatch logs -f %s\ncancel: ddpbatch cancel %s", context.Cause(ctx), id, name, name)
}

// jobName is what a person types for a job: its id where the commands find that, or else its run directory.
func jobName(e *env, run *rundir.Dir, id string) string {
	if found, err := rundir.Find(e.abs("runs"), id); err == nil && found.Path() == run.Path() {
		return id
	}
	return slurm.ShellQuote(e.short(run.Path()))
}

// endOf makes a job's end into an error: nil where it is done.
func endOf(id string, row jobStatus) error {
	switch {
	case len(row.elements) == 1:
		return row.elements[0].end()
	case len(row.elements) > 1:
		return endOfArray(id, row.elements)
	case row.VerdictJob == id && row.Exit != nil && *row.Exit != 0:
		code := *row.Exit
		if row.givenUp {
			code = givenUpCode(code)
		}
		return &codeError{code: code, err: fmt.Errorf("job %s: %s", id, row.Message)}
	case row.VerdictJob == id && row.Exit != nil, row.State == "COMPLETED":
		return nil
	}
	return &codeError{code: exitFailed, err: fmt.Errorf("job %s ended as %s: %s", id, row.State, row.why())}
}

// end is endOf for a row by itself.
func (row *jobStatus) end() error { return endOf(row.Job, *row) }

// endOfArray is the error of elements that did not end well, with the largest of their exit codes.
func endOfArray(id string, elements []jobStatus) error {
	const most = 20 // that are named
	var failed []error
	code := 0
	for _, element := range elements {
		if err := element.end(); err != nil {
			failed = append(failed, err)
			code = max(code, exitCode(err))
		}
	}
	if len(failed) == 0 {
		return nil
	}
	text := fmt.Sprintf("job %s: %d of %s did not end well", id, len(failed), plural(len(elements), "element"))
	for _, err := range failed[:min(most, len(failed))] {
		text += "\n  " + err.Error()
	}
	if more := len(failed) - most; more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
	}
	return &codeError{code: code, err: errors.New(text)}
}

// why says what is known of the end of a job that left no verdict.
func (row *jobStatus) why() string {
	if row.cancelled {
		return "it was cancelled before it began"
	}
	return cmp.Or(row.Next, row.Reason, "no agent left a verdict; see ddpbatch logs "+row.logsName())
}

// logsName is what logs knows a job by: an element that has not begun by its array.
func (row *jobStatus) logsName() string {
	array, _, isElement := strings.Cut(row.Job, "_")
	if _, begun := row.run.Index(); isElement && !begun {
		return array
	}
	return row.Job
}

// How often a followed log and its job are looked at. Logs lie on shared file systems, where
// nothing can wait for a change.
const (
	logPoll   = 200 * time.Millisecond
	statePoll = time.Second
)
