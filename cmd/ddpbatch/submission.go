package main

import (
	"context"
	"errors"
	"fmt"

	"ddpbatch/internal/submit"
	"ddpbatch/slurm"
)

// submitEnv is what package submit knows of this process.
func (e *env) submitEnv() submit.Env {
	client, dropped := newSlurmClient(e)
	return submit.Env{Hostname: e.Hostname, Now: e.Now, Log: e.log(), Slurm: client, Dropped: dropped}
}

type submission = submit.Submission

func askUserJobs(e *env) submit.UserJobs {
	client, _ := newSlurmClient(e)
	return submit.AskUserJobs(client)
}

func wholeID(id string) string { return submit.WholeID(id) }

// lookForLost finds the job that a command was killed before it could record it. Nothing is written: whoever only looks may not be
// allowed to.
func (row *jobStatus) lookForLost(ctx context.Context, jobsOf submit.UserJobs) error {
	s, err := submit.Newest(ctx, row.run, false, jobsOf)
	if err != nil || s.Open == nil {
		return err
	}
	row.cutShort = s
	index, isElement := row.run.Index()
	only := s.Open.Element
	switch {
	case s.Job == "":
		if errors.Is(s.Asked, slurm.ErrNoSlurm) {
			return nil
		}
		return s.Asked
	case row.array != nil && only != nil:
		row.array.alone[*only] = s.Job
		row.array.known = append(row.array.known, s.Job)
	case row.array != nil:
		row.array.whole, row.array.alone = s.Job, map[int]string{}
		row.array.known = append(row.array.known, s.Job)
	case isElement && (only == nil || *only == index):
		row.Job = fmt.Sprintf("%s_%d", s.Job, index)
	case !isElement:
		row.Job = s.Job
	}
	return nil
}

// addCutShort tells of a submission of which nobody recorded what came of it, and that has no job as far as is known.
func (row *jobStatus) addCutShort(s *submit.Submission) {
	if s == nil || s.Job != "" {
		return
	}
	what := "a submit"
	if !s.First {
		what = "a resume"
	}
	switch {
	case s.By != nil:
		row.Next, row.ended = "it is being submitted: "+s.By.String(), false
	case s.Asked != nil:
		row.Next, row.ended = what+" was cut short; whether Slurm has taken its job, only Slurm can tell, and its commands are not here", false
	default:
		row.Next = what + " was cut short, and Slurm has no job of it; to submit it: ddpbatch resume " + slurm.ShellQuote(row.RunDir)
	}
	switch {
	case s.First && s.By != nil:
		row.State = "SUBMITTING"
	case s.First && s.Asked == nil:
		row.State = "UNSUBMITTED"
	}
}
