package recovery

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
)

// Action is what follows the end of an attempt.
type Action string

const (
	Finish  Action = "finish"   // the run is done
	Restart Action = "restart"  // the agents start the workers again, within the job
	Requeue Action = "requeue"  // the batch script asks Slurm to start the job again
	EndLink Action = "end-link" // the job ends, and the next link of its chain goes on; after the last link, whoever resumes the run
	GiveUp  Action = "give-up"  // nothing more happens by itself
)

// Decision is an Action, why, and what else is to be done.
type Decision struct {
	Action  Action
	Why     string   // a sentence for people
	Cause   Cause    // whose budget a Requeue takes from, as the ledger's "requeue" must tell it
	Exclude []string // nodes that the job should not run on again, sorted; for a Requeue
}

// Decide says what follows an attempt that ended as v says. ledger is the run's until then, oldest first; the
// attempt's own "end" may be in it already or not. room tells whether the agents could start the workers again within
// the job, and restarts how often they have done so in this job.
//
// The rules, in their order:
//
//  1. Done is done. Exit code 93 and a person's cancel end the run.
//  2. Exit code 75 is a wish for a requeue, whatever Policy.On says.
//  3. A failure that comes again until a person changes something ends the run, whatever the policy wishes: see [history.comesAgain].
//  4. What is the workers' or a node's fault is mended within the job, where there is room and MaxRestarts is not used up.
//  5. Otherwise the job is requeued, where On names the cause; but a time-out ends the link of a chain, whatever On and budgets say.
//  6. No requeue where the cause's budget is used up, and neither a requeue nor a restart where the run makes no progress.
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

// CauseOf is the cause that a verdict counts as: one of [Causes], or Done, Saved, Cancelled, Start, Unknown.
func CauseOf(v rundir.Verdict) Cause {
	c := Cause(v.Cause)
	if v.OOM && c == Crash {
		return OOM
	}
	return c
}

// final decides what leaves no choice.
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

// mendable reports whether starting the workers again on the same nodes, or on those that are left, may help.
func mendable(c Cause) bool {
	switch c {
	case Crash, OOM, Hang, Node:
		return true
	}
	return false
}

// WasCancelled reports whether a person has asked for the end of the job that began last (ddpbatch cancel), be it before it began. A resume
// takes that back, but one of another element of an array alone does not, nor does the line that records the cancelled job itself.
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
		case rundir.EventSubmitting: // a cluster that is rebuilt counts from 1 again: what is submitted now may get that number, too
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

// covers reports whether a job is the one that is to be cancelled, or an element of that array.
func covers(cancelled, job string) bool {
	return job == cancelled || strings.HasPrefix(job, cancelled+"_")
}

// requeue decides whether the job is started again once the restarts within it are used up.
func requeue(p Policy, h history, v rundir.Verdict, wish bool) Decision {
	cause := CauseOf(v)
	if wish && (!slices.Contains(Causes(), cause) || drained(v)) {
		cause = Saved
	}
	if !wish && !p.Names(cause) && !(p.Chain && cause == Timeout) {
		return Decision{Action: GiveUp, Why: notAsked(p, cause, v)}
	}
	if d, stuck := h.stuck(true); stuck {
		return d
	}
	if p.Chain && cause == Timeout {
		return Decision{Action: EndLink, Why: causeText(v), Cause: cause}
	}
	most, used := p.budget(cause), h.requeues[cause]
	if used >= most {
		return Decision{Action: GiveUp, Why: fmt.Sprintf("%s, and requeue.max.%s = %d is used up", causeText(v), cause, most)}
	}
	why := fmt.Sprintf("%s: requeue %d", causeText(v), used+1)
	if most != Unlimited {
		why = fmt.Sprintf("%s of %d for this cause", why, most)
	}
	return Decision{Action: Requeue, Why: why, Cause: cause, Exclude: h.badNodes()}
}

// drained reports whether the workers saved as Slurm drains a node, which is no fault of the node's: that takes from no budget of failures.
func drained(v rundir.Verdict) bool { return CauseOf(v) == Node && v.Drain && v.Saved }

// notAsked says why a cause is not followed by a requeue, and what to write to have one.
func notAsked(p Policy, c Cause, v rundir.Verdict) string {
	switch {
	case !slices.Contains(Causes(), c):
		return causeText(v)
	case p.MaxRestarts > 0 && mendable(c):
		return fmt.Sprintf("%s, launch.max_restarts = %d is used up, and requeue.on does not name %q", causeText(v), p.MaxRestarts, c)
	}
	return fmt.Sprintf("%s, and requeue.on does not name %q", causeText(v), c)
}

// causeText names a cause for people.
func causeText(v rundir.Verdict) string {
	words := map[Cause]string{
		Saved: "the workers saved and ask to be started again", Preempt: "the job was preempted", Timeout: "the time limit came",
		Node: "a node was lost", Hang: "the run hung", OOM: "memory ran out", Crash: "a worker failed",
		Start:   "the workers were not started",
		Unknown: "nobody lived to say how the attempt ended",
	}[CauseOf(v)]
	if CauseOf(v) == Node && v.Error != "" { // as a rank on it said
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

// defaultMinLifetime is how long an attempt lives at least of which it may be believed that it got on, where nobody counts its steps: a
// command of the user's, say. It is longer than what large models take to load.
const defaultMinLifetime = 5 * time.Minute

// history is what a ledger tells of a run, the present attempt included.
type history struct {
	policy     Policy
	requeues   map[Cause]int // taken so far, by the cause that they count as; over all of the run
	stalled    int           // attempts, up to the present one, that came no further; since a person last had a hand in it
	furthest   int64         // step, since then
	stepsKnown bool
	saved      bool // the last attempt did
	bad        []badNode
	began      bool           // an attempt before the last came to a step, as far as that is known
	traces     map[string]int // how often each traceback ended an attempt before its first step; since one came further
}

// badNode is a node that an attempt ended by.
type badNode struct {
	name  string
	cause Cause
}

// end is an attempt's end as the ledger has it.
type end struct {
	cause Cause
	saved bool
	step  int64
	lived time.Duration
	nodes []string
	trace string
	unfit []string
}

// historyOf reads a ledger, and v as the last attempt's end.
func historyOf(p Policy, ledger []rundir.Event, v rundir.Verdict) history {
	h := history{policy: p, requeues: map[Cause]int{}, traces: map[string]int{}}
	began, job, links := map[int]time.Time{}, "", map[string]bool{} // links: the jobs of the chain after its first
	ends := map[int]end{}                                           // by attempt: a refined verdict replaces the one before
	var order []int
	for _, e := range ledger {
		switch e.Event {
		case "begin":
			began[e.Attempt] = e.Time
			if e.Job != job && !links[e.Job] { // a person has started it
				clear(ends)
				order = nil
			}
			job = e.Job
		case "end":
			if e.Attempt == v.Attempt {
				continue // v says it better
			}
			if _, again := ends[e.Attempt]; !again {
				order = append(order, e.Attempt)
			}
			ends[e.Attempt] = endOf(e, began[e.Attempt])
		case "requeue":
			h.requeues[Cause(e.Cause)]++
		case "refused": // the requeue before it
			c := Cause(e.Cause)
			h.requeues[c] = max(0, h.requeues[c]-1)
		case "submit", "resume":
			clear(ends)
			clear(links)
			order = nil
		case "link":
			id, _ := e.SubmittedJob()
			links[id] = true
		}
	}
	for _, attempt := range order {
		h.add(ends[attempt])
	}
	last := end{cause: CauseOf(v), saved: v.Saved, step: v.Step, nodes: union(v.Nodes, v.Host), trace: v.Trace, unfit: v.Unfit}
	if at, ok := began[v.Attempt]; ok {
		last.lived = v.Time.Sub(at)
	}
	before := h.began
	h.add(last)
	h.began = before
	return h
}

func endOf(e rundir.Event, began time.Time) end {
	cause := Cause(e.Cause)
	found := end{cause: cause, saved: e.Saved, step: e.Step, nodes: union(e.Nodes, e.Node), trace: e.Trace, unfit: e.Unfit}
	if e.Drain { // they may be back by now
		found.nodes = nil
	}
	if !began.IsZero() {
		found.lived = e.Time.Sub(began)
	}
	return found
}

// add takes one more attempt's end into account.
func (h *history) add(e end) {
	for _, name := range e.nodes {
		h.bad = append(h.bad, badNode{name, e.cause})
	}
	for _, name := range e.unfit { // whatever the attempt ended by
		h.bad = append(h.bad, badNode{name, Node})
	}
	h.saved = e.saved
	progress := e.step > h.furthest
	if e.step > 0 {
		h.stepsKnown = true
	}
	if !h.stepsKnown {
		progress = e.lived >= h.policy.minLifetime(e.saved)
	}
	h.furthest = max(h.furthest, e.step)
	switch began := e.step > 0 || !h.stepsKnown && progress; {
	case began:
		h.began = true
		clear(h.traces)
	case e.trace != "":
		h.traces[e.trace]++
	}
	switch {
	case e.cause == Done, progress:
		h.stalled = 0
	case e.cause == Preempt: // which tells nothing about the run
	default:
		h.stalled++
	}
}

// comesAgain says why a worker's failure comes again however often the workers are started: its last words say so, and no attempt has got
// further, or the same traceback has ended two attempts before they told of a step.
func (h history) comesAgain(v rundir.Verdict) (why string, again bool) {
	switch c := CauseOf(v); {
	case c != Crash && c != OOM:
		return "", false
	case v.Final && !h.began: // else a node may lack what others have
		return fmt.Sprintf("%s, and no restart mends that: %s", causeText(v), cmp.Or(v.Advice, v.Error)), true
	case c == Crash && h.traces[v.Trace] > 1:
		return fmt.Sprintf("%s, with the same traceback as before, and again no step was told of: no restart mends that", causeText(v)),
			true
	}
	return "", false
}

// stuck gives up on a run that came no further in so many attempts, where judge is true.
func (h history) stuck(judge bool) (Decision, bool) {
	if !judge || h.stalled < h.policy.maxStalled() {
		return Decision{}, false
	}
	where := fmt.Sprintf("beyond step %d", h.furthest)
	if !h.stepsKnown {
		where = fmt.Sprintf("through their first %v", h.policy.minLifetime(h.saved))
	}
	return Decision{Action: GiveUp, Why: fmt.Sprintf("no progress: %d attempts in a row did not get %s", h.stalled, where)}, true
}

// DrainedBefore are the nodes that earlier attempts left as Slurm drained them, since a person last had a hand in the run: a job that
// excludes them since then may have them again.
func DrainedBefore(ledger []rundir.Event) (nodes []string) {
	for _, e := range ledger {
		switch {
		case e.Event == rundir.EventSubmit, e.Event == rundir.EventResume:
			nodes = nil
		case e.Event == rundir.EventEnd && e.Drain:
			nodes = union(nodes, e.Nodes...)
		}
	}
	return nodes
}

// badNodes are those that a lost node or a hang is blamed on, or that Slurm drains now, those that failed a check, and that which crash
// after crash is blamed on. Sorted, each once.
func (h history) badNodes() []string {
	const most = 64 // more than any job can do without; also bounds the command line
	var names []string
	crashes := map[string]int{}
	for _, b := range h.bad {
		switch b.cause {
		case Node, Hang:
			names = append(names, b.name)
		case Crash:
			crashes[b.name]++
		}
	}
	// one node, and no other, that crashes name again and again
	for name, times := range crashes {
		if len(crashes) == 1 && times > 1 {
			names = append(names, name)
		}
	}
	names = names[max(0, len(names)-most):]
	slices.Sort(names)
	return slices.Compact(names)
}
