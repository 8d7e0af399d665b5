package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"ddpbatch/internal/rundir"
	"ddpbatch/slurm"
)

// submission is what is known of the newest submission of a run, or of the array that it belongs to.
type submission struct {
	open  *rundir.Event    // where nobody lived to record what came of it; nil: it is recorded
	job   string           // that Slurm took, and that is not recorded; "": none
	first bool             // no job was recorded before
	alive *slurm.JobStatus // another job that runs the run's script, is not recorded and has not ended
	by    *rundir.Claimant // who is at it now; nil: nobody is
	run   *rundir.Dir      // the whole one
	asked error            // why Slurm could not be asked, where that was to be done
}

// newestSubmission looks for the job of a submission that nobody recorded: first among the jobs that have begun, then in Slurm, among those
// that run the run's script. With always, Slurm is asked even where all is recorded, since a person may have submitted the script by hand.
func newestSubmission(ctx context.Context, e *env, run *rundir.Dir, always bool) (*submission, error) {
	return newestSubmissionIn(ctx, run, always, askUserJobs(e))
}

// userJobsOf returns the jobs of a user, who is named as Slurm's commands take it.
type userJobsOf func(ctx context.Context, user string) (slurm.UserJobs, error)

// askUserJobs asks Slurm once for each user.
func askUserJobs(e *env) userJobsOf {
	type answer struct {
		jobs slurm.UserJobs
		err  error
	}
	answers := map[string]answer{}
	return func(ctx context.Context, user string) (slurm.UserJobs, error) {
		a, asked := answers[user]
		if !asked {
			client, _ := newSlurmClient(e)
			a.jobs, a.err = client.UserJobs(ctx, user)
			answers[user] = a
		}
		return a.jobs, a.err
	}
}

// newestSubmissionIn is newestSubmission with the function that asks for users' jobs: a command that looks at several runs shares one.
func newestSubmissionIn(ctx context.Context, run *rundir.Dir, always bool, jobsOf userJobsOf) (*submission, error) {
	run, err := wholeRun(run)
	if err != nil {
		return nil, err
	}
	s := &submission{run: run}
	if run.Spec().Kind != "slurm" {
		return s, nil
	}
	known, err := run.Submissions()
	if err != nil && !always { // a ledger that cannot be read is not worth a failure of who only looks
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	recorded, err := run.JobID()
	if err != nil {
		return nil, err
	}
	s.open, s.job, s.first = known.Open, known.Lost, len(known.Jobs) == 0
	if s.open == nil && s.first && recorded == "" { // submit was killed before it noted anything
		s.open = &rundir.Event{Event: rundir.EventSubmitting, Detail: rundir.EventSubmit}
	}
	if s.open != nil {
		if who, is, err := run.Claimed(); err == nil && is {
			s.by = &who
		}
	}
	if always || s.open != nil && s.job == "" {
		s.asked = s.ask(ctx, jobsOf, func(id string) bool {
			return known.Known(id) || s.open == nil && id == recorded || slices.Contains(known.TooLate, id)
		})
	}
	if s.open != nil && s.job == "" && recorded != "" && !known.Known(recorded) {
		s.job, s.asked = recorded, nil // whoever submitted it was killed before the ledger was told
	}
	return s, nil
}

// ask asks Slurm for jobs that run the run's script and are not known.
func (s *submission) ask(ctx context.Context, jobsOf userJobsOf, known func(id string) bool) error {
	user, err := otherOwner(s.run)
	if err != nil {
		return err
	}
	all, err := jobsOf(ctx, user)
	if err != nil {
		return err
	}
	jobs := slices.DeleteFunc(all.OfScript(s.run.ScriptPath()), func(job slurm.JobStatus) bool { return known(wholeID(job.ID)) })
	slices.SortStableFunc(jobs, func(a, b slurm.JobStatus) int { // those that have not ended first, and of these the newest
		return cmp.Or(order(a.Ended(), b.Ended()), cmp.Compare(jobNumber(wholeID(b.ID)), jobNumber(wholeID(a.ID))))
	})
	if s.open != nil && s.job == "" && len(jobs) > 0 {
		s.job = wholeID(jobs[0].ID)
	}
	for _, job := range jobs {
		if wholeID(job.ID) != s.job && !job.Ended() {
			s.alive = &job
			break
		}
	}
	return nil
}

// lookForLost finds the job that a command was killed before it could record it. Nothing is written: whoever only looks may not be
// allowed to.
func (row *jobStatus) lookForLost(ctx context.Context, jobsOf userJobsOf) error {
	s, err := newestSubmissionIn(ctx, row.run, false, jobsOf)
	if err != nil || s.open == nil {
		return err
	}
	row.cutShort = s
	index, isElement := row.run.Index()
	only := s.open.Element
	switch {
	case s.job == "":
		if errors.Is(s.asked, slurm.ErrNoSlurm) {
			return nil
		}
		return s.asked
	case row.array != nil && only != nil:
		row.array.alone[*only] = s.job
		row.array.known = append(row.array.known, s.job)
	case row.array != nil:
		row.array.whole, row.array.alone = s.job, map[int]string{}
		row.array.known = append(row.array.known, s.job)
	case isElement && (only == nil || *only == index):
		row.Job = fmt.Sprintf("%s_%d", s.job, index)
	case !isElement:
		row.Job = s.job
	}
	return nil
}

// addCutShort tells of a submission of which nobody recorded what came of it, and that has no job as far as is known.
func (row *jobStatus) addCutShort(s *submission) {
	if s == nil || s.job != "" {
		return
	}
	what := "a submit"
	if !s.first {
		what = "a resume"
	}
	switch {
	case s.by != nil:
		row.Next, row.ended = "it is being submitted: "+s.by.String(), false
	case s.asked != nil:
		row.Next, row.ended = what+" was cut short; whether Slurm has taken its job, only Slurm can tell, and its commands are not here", false
	default:
		row.Next = what + " was cut short, and Slurm has no job of it; to submit it: ddpbatch resume " + slurm.ShellQuote(row.RunDir)
	}
	switch {
	case s.first && s.by != nil:
		row.State = "SUBMITTING"
	case s.first && s.asked == nil:
		row.State = "UNSUBMITTED"
	}
}

// settle records the job of a submission that nobody recorded; it tells whether there was one.
func (s *submission) settle(e *env) (bool, error) {
	if s.open == nil || s.job == "" {
		return false, nil
	}
	return true, recordJob(e, s.run, s.job, *s.open)
}

// recordJob tells a run, of which submitting notes the submission, which job Slurm took, unless that is known: the job itself may have
// begun, and a person may have cancelled it, before sbatch ends.
func recordJob(e *env, run *rundir.Dir, id string, submitting rundir.Event) error {
	if err := setJobID(e, run, id); err != nil {
		return err
	}
	event := rundir.Event{
		Time: e.Now(), Event: cmp.Or(submitting.Detail, rundir.EventResume), Element: submitting.Element, Detail: "job " + id,
	}
	if added, err := run.RecordJob(event); err != nil || !added || event.Element == nil {
		return err
	}
	element, err := run.Task(*event.Element) // whose ledger is its own
	if err != nil {
		return err
	}
	event.Element = nil
	return element.Append(event)
}

// noteBegin records the job that begins, where the command that submitted it was killed before it could. A lost job must not begin once the
// run has been submitted again.
func noteBegin(e *env, run *rundir.Dir, jobID string) error {
	id := wholeID(jobID)
	known, err := run.Submissions()
	if err != nil {
		return err
	}
	recorded, err := run.JobID()
	newest := cmp.Or(recorded, known.Newest())
	switch {
	case err != nil || known.Known(id):
		return err
	case slices.Contains(known.TooLate, id):
		return &codeError{code: exitNever, err: fmt.Errorf(
			"job %s was submitted too late: another command had claimed the run; %s", id, resumeHint(run))}
	case known.Open != nil:
		return recordJob(e, run, id, *known.Open)
	case recorded == id:
		return nil
	case known.Dropped && jobNumber(id) < jobNumber(newest): // ids rise: a job of a higher one was submitted by hand since
		return &codeError{code: exitNever, err: fmt.Errorf(
			"job %s was submitted by a command that was killed, and the run has been submitted as job %s since; %s", id, newest, resumeHint(run))}
	case jobID != id: // an element of an array that was submitted by hand
		return nil
	}
	return setJobID(e, run, id)
}

// setJobID records the job id of a run. In a shared folder another user may have taken the name of the job's link. That is only a
// warning: the job runs without the link.
func setJobID(e *env, run *rundir.Dir, id string) error {
	err := run.SetJobID(id)
	if errors.Is(err, rundir.ErrLink) {
		e.log().Warn("the run is found by its path, and not by its job id", "error", err)
		return nil
	}
	return err
}

// claimRun keeps other commands from submitting a run until the claim is given back.
func claimRun(e *env, run *rundir.Dir, doing string) (release func(), claim *rundir.Claim, err error) {
	claim, err = run.Claim(e.Hostname, doing, e.Now())
	var held *rundir.HeldError
	switch {
	case errors.As(err, &held):
		return nil, nil, &usageError{message: held.Error()}
	case err != nil:
		return nil, nil, err
	}
	if claim.Dead != nil {
		e.log().Warn("an earlier command did not live to submit this run, or to record its job", "command", claim.Dead.String())
	}
	return sync.OnceFunc(func() {
		if err := claim.Release(); err != nil {
			e.log().Warn("the run stays claimed until this process ends", "error", err)
		}
	}), claim, nil
}

// checkClaim returns an error unless this command still has the claim on the run.
func checkClaim(claim *rundir.Claim) error {
	err := claim.Check()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rundir.ErrClaimLost):
		return &codeError{code: exitUsage, err: fmt.Errorf("%w: %w", errNotAsked, err)}
	}
	return fmt.Errorf("%w: %w", errNotAsked, err)
}

// wholeRun is the run that an array's element belongs to, and else run itself.
func wholeRun(run *rundir.Dir) (*rundir.Dir, error) {
	if array, _, ok := elementOf(run); ok {
		return rundir.Open(array)
	}
	return run, nil
}

// wholeID is the id of a job of which id is an element, a group of elements or a component.
func wholeID(id string) string {
	if i := strings.IndexAny(id, "_+"); i >= 0 {
		return id[:i]
	}
	return id
}

// otherOwner is the number of the user whose run it is, as Slurm's commands take it; "" where that is who asks.
func otherOwner(run *rundir.Dir) (string, error) {
	info, err := os.Stat(run.Path())
	if err != nil {
		return "", fmt.Errorf("look whose run it is: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int64(owner.Uid) == int64(os.Geteuid()) {
		return "", nil
	}
	return strconv.FormatUint(uint64(owner.Uid), 10), nil
}

func jobNumber(id string) int {
	n, _ := strconv.Atoi(id)
	return n
}

// order puts false before true.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
