package recovery

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
)

// Evidence is what is known of an attempt's end from outside its agents: from the batch script's shell, and from one
// question to Slurm after srun had ended.
type Evidence struct {
	Signals []string  // that the shell got: "TERM", "USR2"
	Now     time.Time // when Slurm was asked
	Lead    time.Duration
	Unmet   bool      // no agent left a verdict, and no rank was begun
	EndTime time.Time // when the time limit ends the job; zero: not known, or no limit

	Asked  bool   // Slurm has answered: what follows is known
	State  string // as scontrol shows it: "RUNNING", "COMPLETING", "TIMEOUT"
	Reason string // "None", "TimeLimit"
	// Requeued tells that Slurm has put the job back into the queue already, by itself or because a person asked it to.
	Requeued  bool
	Preempted bool     // another job is to get the nodes
	Down      []string // nodes of the job that are down, or do not answer
}

// earlyWarning is how much earlier than it was asked for the warning may come: Slurm looks once in 30 s, and rounds
// (sbatch(1), --signal: "up to 60 seconds earlier").
const earlyWarning = time.Minute

// Refine gives v the cause that the evidence tells. An agent that is told to stop sees no more than a signal;
// one that is killed says nothing. What the agents know better stays: a worker that failed did fail, whatever
// became of the job after that.
//
// While Slurm ends a job its state is COMPLETING, whatever ends it; only a time limit leaves a reason ("TimeLimit"), and only a
// preemption a time. What leaves neither is a cancel, which nobody may undo; so is a TERM that nothing explains.
func Refine(v rundir.Verdict, e Evidence) rundir.Verdict {
	switch {
	case blameless(v):
		cause, why := e.cause(v)
		return retell(v, cause, why, e)
	case CauseOf(v) == Timeout && v.Exit == exit.Timeout:
		return retell(v, Start, "the agents did not meet in time", e) // their own limit, not the job's
	case CauseOf(v) == Node:
		v.Nodes = union(v.Nodes, e.Down...)
	}
	return v
}

// blameless tells whether v leaves open why the attempt ended: its agents were told to stop, they were
// warned, or nobody said anything.
func blameless(v rundir.Verdict) bool {
	switch CauseOf(v) {
	case Cancelled, Saved, Unknown, Preempt, Timeout:
		return v.Exit != exit.Never && v.Exit != exit.Timeout
	case Crash: // a worker that Slurm's TERM has reached before its agent
		return v.Signal == sigTERM
	case Node: // the workers saved, as they were warned of a drain; a person may have cancelled the job meanwhile
		return v.Drain && v.Exit == exit.Requeue
	}
	return false
}

const (
	sigTERM  = 15
	exitTERM = 128 + sigTERM
	exitKILL = 128 + 9
)

// cause is what the evidence says of an attempt whose agents cannot tell, and in words; the cause that
// v has already where it says nothing.
func (e Evidence) cause(v rundir.Verdict) (Cause, string) {
	gotTERM := slices.Contains(e.Signals, "TERM")
	warned := slices.Contains(e.Signals, "USR1") || slices.Contains(e.Signals, "USR2")
	wish := v.Exit == exit.Requeue
	switch {
	case len(e.Down) > 0 && !wish && (e.Requeued || CauseOf(v) == Unknown):
		return Node, "the job lost " + strings.Join(e.Down, ", ")
	case e.has("NODE_FAIL") || e.Reason == "NodeDown":
		return Node, "the job lost a node"
	case e.Preempted:
		return Preempt, "the job was preempted"
	case e.Reason == "TimeLimit" || e.has("TIMEOUT"):
		return Timeout, limitCame(v)
	case e.Cancelled():
		return Cancelled, "the job was cancelled"
	case e.Requeued:
		return Preempt, "Slurm took the nodes and put the job back into the queue"
	case e.Asked && !gotTERM && CauseOf(v) == Cancelled && len(v.Nodes) > 0: // srun's --kill-on-bad-exit can be quicker than the agents
		return Node, "an agent was lost, and srun told the others to stop"
	case e.Asked && !gotTERM && e.Unmet && CauseOf(v) == Unknown && v.Exit == exitKILL:
		// srun's TERM (--kill-on-bad-exit) is lost on a node where Slurm has not started the task yet: that agent waits for the others
		// until KILL comes (--wait).
		return Start, "the agents were killed before any rank began, as srun does where it could not start every one; " +
			"the job's log has its words"
	case e.Asked && !gotTERM && !v.Unstarted && v.Exit == exitTERM && v.Host == "" && (CauseOf(v) == Cancelled || CauseOf(v) == Unknown):
		// nobody had begun
		return Start, "srun could not start every agent, and told those that waited for them to stop; the job's log has its words"
	case wish && CauseOf(v) == Saved && e.nearEnd(warned):
		return Timeout, "the time limit is near"
	case !e.Asked && gotTERM && !e.EndTime.IsZero() && !e.Now.Before(e.EndTime.Add(-time.Second)):
		return Timeout, limitCame(v)
	case !e.Asked && wish && CauseOf(v) == Cancelled:
		// the workers do their part; a cancel that Slurm cannot confirm is only one of several reasons
		return Saved, "Slurm does not say why the job was told to end"
	}
	return CauseOf(v), ""
}

// limitCame says that the time limit came, and of workers that it found at work though they were warned what gives them more time.
func limitCame(v rundir.Verdict) string {
	const came = "the time limit came"
	if v.Saved || v.WarnedS == 0 {
		return came
	}
	had := time.Duration(v.WarnedS * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("%s, and %v from the warning on were too short for the workers to save (requeue.lead)", came, had)
}

// Cancelled tells whether a person ends the job: nothing else leaves a job that is over, or about to be, without a trace of why. To
// requeue such a job would revive it.
func (e Evidence) Cancelled() bool {
	return e.Asked && !e.Requeued && !e.Preempted && e.Reason != "TimeLimit" && e.Reason != "NodeDown" &&
		(e.has("COMPLETING") || e.has("CANCELLED"))
}

// nearEnd tells whether a stop is explained by the time limit: by Slurm's warning, or because it is as near as a
// warning comes.
func (e Evidence) nearEnd(warned bool) bool {
	if e.EndTime.IsZero() {
		return warned && !e.Asked // nobody can say; the warning is asked for with the limit in mind
	}
	return e.EndTime.Sub(e.Now) <= e.Lead+earlyWarning
}

// has tells whether Slurm's state is, or among others is, the one given.
func (e Evidence) has(state string) bool {
	return slices.Contains(strings.FieldsFunc(e.State, func(r rune) bool { return r == ',' || r == '+' }), state)
}

// retell is v with another cause; why is put before its message.
func retell(v rundir.Verdict, c Cause, why string, e Evidence) rundir.Verdict {
	if c == CauseOf(v) && why == "" {
		return v
	}
	drained := v.Drain
	if drained { // there is another reason
		v.Drain, v.Nodes = false, nil
	}
	if c == Node {
		v.Nodes = union(v.Nodes, e.Down...)
		if len(e.Down) > 0 && !slices.Contains(e.Down, v.Host) { // it is where the agents were told to stop
			v.Host = e.Down[0]
		}
	}
	if why != "" && (Cause(v.Cause) != c || drained) {
		v.Message = why + ": " + v.Message
	}
	v.Cause = string(c)
	return v
}

// union is a, and what of b it lacks, but for what is empty.
func union(a []string, b ...string) []string {
	a = slices.Clip(a)
	for _, s := range b {
		if s != "" && !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}
