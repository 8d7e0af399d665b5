package recovery

import (
	"fmt"
	"slices"
	"strings"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
)

// Action is what follows the end of an attempt.
type Action string

const (
	Finish  Action = "finish"   // the run is done
	Restart Action = "restart"  // the agents restart the workers within the job
	Requeue Action = "requeue"  // the batch script asks Slurm to start the job again
	EndLink Action = "end-link" // the job ends, and the next link of its chain goes on, or after the last link a person who resumes the run
	GiveUp  Action = "give-up"  // nothing more happens by itself
)

// Decision is an Action, its reason, and its details.
type Decision struct {
	Action  Action
	Why     string   // a sentence for people
	Cause   Cause    // the cause whose budget a Requeue takes from, for the ledger's "requeue" event
	Exclude []string // nodes that the job should not run on again, sorted; for a Requeue
}

// Decide decides what follows an attempt that ended with verdict v. ledger holds the run's events so far, oldest first. It may or
// may not contain the attempt's own "end" event. room reports whether the agents can restart the workers within the job, and
// restarts is how often they have done so in this job.
//
// The rules, in order:
//
//  1. A run that is done is finished. Exit code 93 and a person's cancel end the run.
//  2. Exit code 75 asks for a requeue, whatever Policy.On says.
//  3. A failure that would come again until a person changes something ends the run, whatever the policy says: see [history.comesAgain].
//  4. A failure of the workers or of a node leads to a restart within the job, if there is room and MaxRestarts is not used up.
//  5. Otherwise the job is requeued, if On names the cause. In a chain, a time-out ends the link, whatever On and the budgets say.
//  6. The job is not requeued if the cause's budget is used up, and neither requeued nor restarted if the run makes no progress.
func Decide(p Policy, ledger []rundir.Event, v rundir.Verdict, room bool, restarts int) Decision {
	if d, ok := final(v); ok {
		return d
	}
	if WasCancelled(ledger) {
		return Decision{Action: GiveUp, Why: "the run was cancelled"}
	}
	h := historyOf(p, ledger, v)
	wish := v.Exit == exit.Requeue
	if why, again := h.comesAgain(v); again && !wish {
		return Decision{Action: GiveUp, Why: why}
	}
	if !wish && room && restarts < p.MaxRestarts && mendable(CauseOf(v)) {
		if d, stuck := h.stuck(h.stepsKnown); stuck {
			return d
		}
		return Decision{Action: Restart, Why: fmt.Sprintf("%s: restart %d of %d in this job", causeText(v), restarts+1, p.MaxRestarts)}
	}
	return requeue(p, h, v, wish)
}

// CauseOf returns the cause that a verdict counts as: one of [Causes], or Done, Saved, Cancelled, Start, Unknown.
func CauseOf(v rundir.Verdict) Cause {
	c := Cause(v.Cause)
	if v.OOM && c == Crash {
		return OOM
	}
	return c
}

// final decides the ends for which the policy does not matter.
func final(v rundir.Verdict) (Decision, bool) {
	switch {
	case v.Exit == 0 && Cause(v.Cause) == Done:
		return Decision{Action: Finish, Why: "the run is done"}, true
	case v.Exit == exit.Never:
		return Decision{Action: GiveUp, Why: fmt.Sprintf("exit code %d forbids another attempt", exit.Never)}, true
	case Cause(v.Cause) == Cancelled:
		return Decision{Action: GiveUp, Why: "the run was cancelled"}, true
	}
	return Decision{}, false
}

// mendable reports whether it may help to restart the workers on the same nodes, or on those that are left.
func mendable(c Cause) bool {
	switch c {
	case Crash, OOM, Hang, Node:
		return true
	}
	return false
}

// WasCancelled reports whether a person has asked for the end of the job that began last (ddpbatch cancel), even if that was before
// it began. A resume takes the cancel back. A resume of only another element of an array does not, nor does the event that records
// the canceled job itself.
func WasCancelled(ledger []rundir.Event) bool {
	job := ""
	for _, e := range ledger {
		if e.Event == rundir.EventBegin {
			job = e.Job
		}
	}
	cancelled, which := false, ""
	for _, e := range ledger {
		switch e.Event {
		case rundir.EventCancel:
			if job == "" || covers(e.Job, job) {
				cancelled, which = true, e.Job
			}
		case rundir.EventSubmitting: // a rebuilt cluster numbers jobs from 1 again: this job may get the same number
			which = ""
		case rundir.EventSubmit, rundir.EventResume:
			if id, ok := e.SubmittedJob(); ok && covers(id, which) {
				continue
			}
			cancelled = cancelled && e.Element != nil && !strings.HasSuffix(job, fmt.Sprintf("_%d", *e.Element))
		}
	}
	return cancelled
}

// covers reports whether job is the canceled job, or an element of that array.
func covers(cancelled, job string) bool {
	return job == cancelled || strings.HasPrefix(job, cancelled+"_")
}

// requeue decides what follows if the workers are not restarted within the job.
func requeue(p Policy, h history, v rundir.Verdict, wish bool) Decision {
	cause := CauseOf(v)
	if wish && (!slices.Contains(Causes(), cause) || drained(v)) {
		cause = Saved
	}
	if !wish && !p.Names(cause) && !(p.Chain && cause == Timeout) {
		return Decision{Action: GiveUp, Why: notAsked(p, cause, v, h)}
	}
	if d, stuck := h.stuck(true); stuck {
		return d
	}
	if p.Chain && cause == Timeout {
		return Decision{Action: EndLink, Why: causeText(v), Cause: cause}
	}
	most, used := p.budget(cause), h.requeues[cause]
	if used >= most {
		return Decision{Action: GiveUp, Why: fmt.Sprintf("%s, and requeue.max.%s = %d is used up", causeText(v), cause, most) + h.repeats()}
	}
	why := fmt.Sprintf("%s: requeue %d", causeText(v), used+1)
	if most != Unlimited {
		why = fmt.Sprintf("%s of %d for this cause", why, most)
	}
	return Decision{Action: Requeue, Why: why, Cause: cause, Exclude: h.badNodes()}
}

// drained reports whether the workers saved because Slurm drains a node. That is not the node's fault, and takes from no budget of
// failures.
func drained(v rundir.Verdict) bool { return CauseOf(v) == Node && v.Drain && v.Saved }

// notAsked explains why a cause does not lead to a requeue, and what to write to get one.
func notAsked(p Policy, c Cause, v rundir.Verdict, h history) string {
	switch {
	case !slices.Contains(Causes(), c):
		return causeText(v)
	case p.MaxRestarts > 0 && mendable(c):
		return fmt.Sprintf("%s, launch.max_restarts = %d is used up, and requeue.on does not name %q", causeText(v), p.MaxRestarts, c) +
			h.repeats()
	}
	text := fmt.Sprintf("%s, and requeue.on does not name %q", causeText(v), c)
	if c == Crash && !v.Final && v.Trace == "" { // which a new user would otherwise take for the advice to name it
		text += "; if the program is at fault, correct it first"
	}
	return text
}

// repeats returns what to add to the reason of a run that is given up because a budget is used up: with the same error another requeue
// may not help.
func (h history) repeats() string {
	if !h.sameError {
		return ""
	}
	return "; the last two attempts ended with the same error"
}

// causeText describes a cause for people.
func causeText(v rundir.Verdict) string {
	words := map[Cause]string{
		Saved: "the workers saved and ask to be started again", Preempt: "the job was preempted", Timeout: "the time limit came",
		Node: "a node was lost", Hang: "the run hung", OOM: "memory ran out", Crash: "a worker failed",
		Start:   "the workers were not started",
		Unknown: "no agent reported how the attempt ended",
	}[CauseOf(v)]
	if CauseOf(v) == Node && v.Error != "" { // a rank on it reported that
		words = "a node failed"
	}
	switch {
	case CauseOf(v) == Node && v.Drain:
		words = "Slurm drains " + text.Few(v.Nodes, 4)
		if v.Saved {
			words += ", and the workers saved"
		}
	case CauseOf(v) == Node && slices.Contains(v.Unfit, v.Host):
		return fmt.Sprintf("%s failed a check", strings.Join(v.Unfit, ", "))
	case CauseOf(v) == Saved && !v.Saved:
		return "workers ask to be started again, and not all of them saved"
	case CauseOf(v) == Unknown && v.Unstarted:
		return "the job was told to end before its workers were started"
	case words == "":
		return fmt.Sprintf("the attempt ended (%.40q)", v.Cause)
	case v.Host != "" && mendable(CauseOf(v)):
		words += " (" + v.Host + ")"
	case v.Saved && Cause(v.Cause) != Saved:
		words += ", and the workers saved"
	}
	return words
}
