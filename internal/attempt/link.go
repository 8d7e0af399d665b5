package attempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submission"
	"ddpbatch/mpi/launch/recovery"
)

// Link is the place of a job in the chain of its run. It is zero if the job does not belong to a chain.
type Link struct {
	Number  int      // from 1
	Of      int      // how many links the chain was to have
	Earlier []string // the jobs of the links before it
	Later   []string // the jobs of the links after it
}

// LinkOf returns the place of a job in the newest chain that the run was submitted as.
func LinkOf(run *rundir.Dir, jobID string) (Link, error) {
	known, err := run.Submissions()
	if err != nil {
		return Link{}, err
	}
	place := known.Place(jobID)
	if place == 0 {
		return Link{}, nil
	}
	return Link{
		Number: place, Of: max(known.Links, len(known.Chain)),
		Earlier: slices.Clone(known.Chain[:place-1]), Later: slices.Clone(known.Chain[place:]),
	}, nil
}

func (l Link) String() string { return fmt.Sprintf("link %d of %d", l.Number, l.Of) }

// errLinkRuns means that another link of the chain has not ended, for example because the dependency was removed.
var errLinkRuns = errors.New("two links of a chain never run at once")

// accountForOther handles what the link that began last has left, if that is another link than this job. over reports whether the run is
// done. A run that was given up does not begin again. If the other link's batch script died before it could decide what follows,
// accountForOther decides, and asks Slurm how that job ended.
func (l Link) accountForOther(ctx context.Context, e Env, run *rundir.Dir) (over bool, err error) {
	history, err := run.Ledger()
	if err != nil {
		return false, err
	}
	last, ok := lastBegin(history)
	if !ok || !slices.Contains(l.Earlier, last.Job) && !slices.Contains(l.Later, last.Job) {
		return false, nil
	}
	limited, cancel := context.WithTimeout(ctx, questionLimit)
	defer cancel()
	facts, asked := e.Slurm.Facts(limited, last.Job)
	if asked == nil && !facts.Ended() {
		return false, &exit.Error{Code: exit.Never,
			Err: fmt.Errorf("%w: job %s is %s, so that %s ends", errLinkRuns, last.Job, facts.State, l)}
	}
	if v, err := run.Verdict(last.Attempt); err == nil && isDone(v) {
		return true, nil
	}
	for _, event := range slices.Backward(history) {
		switch event.Event {
		case rundir.EventGiveUp:
			return false, refuse(e, run, rundir.Event{Attempt: last.Attempt, Cause: event.Cause, Detail: event.Detail})
		case rundir.EventLinkEnd, rundir.EventRequeue, rundir.EventRefused: // the job has ended since
			return false, nil
		case rundir.EventBegin:
			evidence := recovery.Evidence{Now: e.Now()}
			if asked == nil {
				evidence.Asked, evidence.State, evidence.Reason, evidence.Preempted = true, facts.State, facts.Reason,
					!facts.PreemptTime.IsZero()
			}
			return (&Attempt{Env: e, Run: run, Number: last.Attempt, JobID: last.Job, Link: l}).accountForLink(history, evidence)
		}
	}
	return false, nil
}

// accountForLink decides what follows an attempt of another link whose batch script died before it could.
func (a *Attempt) accountForLink(history []rundir.Event, evidence recovery.Evidence) (over bool, err error) {
	job, err := jobfile.OfRun(a.Run)
	if err != nil {
		return false, err
	}
	read, ok, err := a.readVerdict(exit.Failed)
	if err != nil {
		return false, err
	}
	evidence.Resume = submission.PlainResume(a.Run)
	before := read
	if !ok {
		before = rundir.Verdict{
			Attempt: a.Number, JobID: a.JobID, Cause: causeUnknown, FirstRank: -1, Exit: exit.Failed, Time: a.lastSign(history),
			Message: "no process was left to record how the attempt ended",
		}
		if !evidence.Asked { // as if Slurm had started such a job again by itself
			before.Cause = string(recovery.Node)
		}
	}
	k := known{policy: job.Policy(), history: history, verdict: a.withStep(recovery.Refine(before, evidence)), link: true}
	return a.follow(read, k, rundir.EventLinkEnd, func(why string) string { return "job " + a.JobID + rundir.EndedUnsaid + why })
}

// endLink records that the job ends at its time limit, and that the next link goes on.
func (a *Attempt) endLink(w Ending) error {
	next := fmt.Sprintf("; link %d goes on", a.Link.Number+1)
	if a.Link.Last() {
		next = "; it was the last link"
	}
	return a.Run.Append(rundir.Event{
		Time: a.Env.Now(), Event: rundir.EventLinkEnd, Attempt: a.Number, Cause: string(w.Decision.Cause),
		Link: a.Link.Number, Links: a.Link.Of,
		Detail: w.Decision.Why + next,
	})
}

// Last reports whether no link comes after this one. A chain may have fewer links than Of.
func (l Link) Last() bool { return len(l.Later) == 0 }

// ends returns a line for the job's log that says that the link ends.
func (l Link) ends(why string, run *rundir.Dir) string {
	if l.Last() {
		return fmt.Sprintf("%s ends: %s; it is the last; %s", l, why, submission.ResumeHint(run))
	}
	return fmt.Sprintf("%s ends: %s; link %d goes on (job %s)", l, why, l.Number+1, l.Later[0])
}

// cancelLater cancels the links that come after this one, because the run is over for the reason why. A link that Slurm starts all the same
// ends as it begins.
func (l Link) cancelLater(ctx context.Context, e Env, why string) {
	if len(l.Later) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, orderLimit)
	defer cancel()
	err := untilAnswered(ctx, func(ctx context.Context) error { return e.Slurm.CancelNow(ctx, l.Later[0], l.Later[1:]...) })
	if err != nil {
		e.Log.Warn("the later links of the chain could not be cancelled; each ends as it begins", "jobs",
			strings.Join(l.Later, ","), "error",
			err)
		return
	}
	fmt.Fprintf(e.Err, "ddpbatch: %s: %s, so that the links after it are cancelled: %s\n", l, why, submission.NameJobs(l.Later))
}

// isDone reports whether an attempt has completed the run.
func isDone(v rundir.Verdict) bool { return v.Exit == 0 && v.Cause == string(recovery.Done) }
