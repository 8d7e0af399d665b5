package recovery

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
)

// Evidence is what is known of an attempt's end from outside its agents: from the batch script's shell, and from one question to
// Slurm after srun had ended.
type Evidence struct {
	Signals    []string  // signals that the shell got: "TERM", "USR2"
	Now        time.Time // when Slurm was asked
	Lead       time.Duration
	Unmet      bool      // no agent left a verdict, and no rank was started
	Resume     string    // the command that resumes the run; empty: "ddpbatch resume RUN"
	WarnSignal string    // launch.warn_signal, if the workers run a program of the user's; otherwise ""
	EndTime    time.Time // when the time limit ends the job; zero: unknown, or no limit

	Asked  bool   // Slurm has answered: the fields below are known
	State  string // as scontrol shows it: "RUNNING", "COMPLETING", "TIMEOUT"
	Reason string // "None", "TimeLimit"
	// Requeued reports whether Slurm has put the job back into the queue already, by itself or because a person asked it to.
	Requeued  bool
	Preempted bool     // another job gets the nodes
	Down      []string // nodes of the job that are down, or do not answer
}

// earlyWarning is how much earlier than asked for the warning may come: Slurm checks once in 30 s, and rounds (sbatch(1), --signal:
// "up to 60 seconds earlier").
const earlyWarning = time.Minute

// Refine gives v the cause that the evidence shows. An agent that is told to stop sees only a signal, and one that is killed
// reports nothing. What agents know better stays: a worker that failed did fail, whatever became of the job afterwards.
//
// While Slurm ends a job its state is COMPLETING, whatever ends it. Only a time limit leaves a reason ("TimeLimit"), and only a
// preemption leaves a time. A job that leaves neither was canceled, which nothing may undo. A TERM without any explanation counts
// as a cancel, too.
func Refine(v rundir.Verdict, e Evidence) rundir.Verdict {
	switch {
	case blameless(v):
		cause, why := e.cause(v)
		return retell(v, cause, why, e)
	case CauseOf(v) == Timeout && v.Exit == exit.Timeout:
		return retell(v, Start, "the agents did not meet in time", e) // the agents' own limit, not the job's
	case CauseOf(v) == Node:
		v.Nodes = union(v.Nodes, e.Down...)
	}
	return v
}

// blameless reports whether v leaves open why the attempt ended: its agents were told to stop, they were warned, or none of them
// reported anything.
func blameless(v rundir.Verdict) bool {
	switch CauseOf(v) {
	case Cancelled, Saved, Unknown, Preempt, Timeout:
		return v.Exit != exit.Never && v.Exit != exit.Timeout
	case Crash: // Slurm's TERM may have reached the worker before its agent
		return v.Signal == sigTERM
	case Node: // the workers saved after the warning of a drain; a person may have canceled the job meanwhile
		return v.Drain && v.Exit == exit.Requeue
	}
	return false
}

const (
	sigTERM  = 15
	exitTERM = 128 + sigTERM
	exitKILL = 128 + 9
)

// cause returns the cause that the evidence shows for an attempt whose agents do not know it, and its description. Without evidence
// it returns the cause that v has, and "".
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
		return Timeout, e.limitCame(v)
	case e.Cancelled():
		return Cancelled, "the job was cancelled"
	case e.Requeued:
		return Preempt, "Slurm took the nodes and put the job back into the queue"
	case e.Asked && !gotTERM && CauseOf(v) == Cancelled && len(v.Nodes) > 0: // srun's --kill-on-bad-exit may act before the agents do
		return Node, "an agent was lost, and srun told the others to stop"
	case e.Asked && !gotTERM && e.Unmet && CauseOf(v) == Unknown && v.Exit == exitKILL:
		// srun's TERM (--kill-on-bad-exit) is lost on a node where Slurm has not started the task yet. That agent waits for the
		// others until KILL comes (--wait).
		return Start, "the agents were killed before any rank began, as srun does if it cannot start every one; " +
			"see the job's log for its message"
	case e.Asked && !gotTERM && !v.Unstarted && v.Exit == exitTERM && v.Host == "" && (CauseOf(v) == Cancelled || CauseOf(v) == Unknown):
		// no rank had begun
		return Start, "srun could not start every agent, and stopped those that waited; see the job's log for its message"
	case wish && CauseOf(v) == Saved && e.nearEnd(warned):
		return Timeout, "the time limit is near"
	case !e.Asked && gotTERM && !e.EndTime.IsZero() && !e.Now.Before(e.EndTime.Add(-time.Second)):
		return Timeout, e.limitCame(v)
	case !e.Asked && wish && CauseOf(v) == Cancelled:
		// the workers ask for a requeue; a cancel that Slurm cannot confirm is only one of several possible reasons
		return Saved, "Slurm does not say why the job was told to end"
	}
	return CauseOf(v), ""
}

// limitCame says that the time limit came, and how long workers that had been warned did not save.
func (e Evidence) limitCame(v rundir.Verdict) string {
	const came = "the time limit came"
	if v.Saved || v.WarnedS == 0 {
		return came
	}
	return fmt.Sprintf("%s, and the ranks had not saved %v after the warning", came, timeWarned(v))
}

// MayHang is part of the message of a verdict if no rank had given a sign of life for long when the workers were told to stop.
const MayHang = ": the run may hang"

// limitAdvice says what a person can do if the time limit came before the workers had saved, the commonest case first: the job needs
// more time. If none of the workers reports a save, they may not react to the warning, so it also names that. If they were warned, saving
// may take longer. If the message says that the run may hang, only the first advice is given.
func (e Evidence) limitAdvice(v rundir.Verdict) string {
	advice := []string{"if the job needs more time: " + cmp.Or(e.Resume, "ddpbatch resume RUN") + " --set slurm.time=TIME"}
	if strings.Contains(v.Message, MayHang) {
		return advice[0]
	}
	asked := slices.ContainsFunc(v.Ranks, func(rank rundir.RankEnd) bool { return rank.Exit == exit.Requeue })
	if e.WarnSignal != "" && !asked {
		advice = append(advice, fmt.Sprintf("If the program does not save at the warning: it must handle %s, or look for the "+
			"file that DDPBATCH_STOP_FILE names (docs/pytorch.md)", e.WarnSignal))
	}
	if v.WarnedS > 0 {
		advice = append(advice, fmt.Sprintf("If saving takes longer than %v: a longer requeue.lead", timeWarned(v)))
	}
	return strings.Join(advice, ". ")
}

// timeWarned is the time from the warning until all workers had ended.
func timeWarned(v rundir.Verdict) time.Duration {
	return time.Duration(v.WarnedS * float64(time.Second)).Round(time.Second)
}

// Cancelled reports whether a person ends the job: only that ends a job, or is about to, without a trace of the reason. A requeue
// would revive such a job.
func (e Evidence) Cancelled() bool {
	return e.Asked && !e.Requeued && !e.Preempted && e.Reason != "TimeLimit" && e.Reason != "NodeDown" &&
		(e.has("COMPLETING") || e.has("CANCELLED"))
}

// nearEnd reports whether the time limit explains a stop: because of Slurm's warning, or because the limit is as near as when a
// warning comes.
func (e Evidence) nearEnd(warned bool) bool {
	if e.EndTime.IsZero() {
		return warned && !e.Asked // the end is not known; the warning is asked for because of the limit
	}
	return e.EndTime.Sub(e.Now) <= e.Lead+earlyWarning
}

// has reports whether the given state is among Slurm's states of the job.
func (e Evidence) has(state string) bool {
	return slices.Contains(strings.FieldsFunc(e.State, func(r rune) bool { return r == ',' || r == '+' }), state)
}

// retell returns v with another cause, and why before its message.
func retell(v rundir.Verdict, c Cause, why string, e Evidence) rundir.Verdict {
	if c == CauseOf(v) && why == "" {
		return v
	}
	drained := v.Drain
	if drained { // the drain was not the reason
		v.Drain, v.Nodes = false, nil
	}
	if c == Node {
		v.Nodes = union(v.Nodes, e.Down...)
		if len(e.Down) > 0 && !slices.Contains(e.Down, v.Host) { // v.Host is only where the agents were told to stop
			v.Host = e.Down[0]
		}
	}
	if why != "" && (Cause(v.Cause) != c || drained) {
		v.Message = why + ": " + v.Message
	}
	v.Cause = string(c)
	if c == Timeout && !v.Saved && v.Advice == "" {
		v.Advice = e.limitAdvice(v)
	}
	return v
}

// union returns a, followed by the elements of b that it lacks, without empty ones.
func union(a []string, b ...string) []string {
	a = slices.Clip(a)
	for _, s := range b {
		if s != "" && !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}
