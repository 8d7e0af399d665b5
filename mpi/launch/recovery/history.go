package recovery

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"ddpbatch/internal/rundir"
)

// defaultMinLifetime is how long an attempt must last to count as progress if its steps are not counted, as with a user's command.
// It is longer than large models take to load.
const defaultMinLifetime = 5 * time.Minute

// history is a run's past according to its ledger, including the present attempt.
type history struct {
	policy     Policy
	requeues   map[Cause]int // requeues so far, over the whole run, by the cause that they count as
	stalled    int           // attempts in a row, up to the present one, without progress, since a person last started or resumed the run
	furthest   int64         // the furthest step since then
	stepsKnown bool
	saved      bool // whether the last attempt saved
	bad        []badNode
	began      bool           // whether an attempt before the last reached a step, as far as is known
	sameError  bool           // since a person last started or resumed the run, the attempt before the last ended with the same error
	traces     map[string]int // how often each traceback ended an attempt before its first step, since an attempt last got further
}

// badNode is a node because of which an attempt ended.
type badNode struct {
	name  string
	cause Cause
}

// end is an attempt's end according to the ledger.
type end struct {
	cause Cause
	saved bool
	step  int64
	lived time.Duration
	nodes []string
	trace string
	unfit []string
	err   string
}

// historyOf computes the history from a ledger, and from v as the last attempt's end.
func historyOf(p Policy, ledger []rundir.Event, v rundir.Verdict) history {
	h := history{policy: p, requeues: map[Cause]int{}, traces: map[string]int{}}
	began, job, links := map[int]time.Time{}, "", map[string]bool{} // links: the jobs of the chain after the first
	ends := map[int]end{}                                           // by attempt: a refined verdict replaces an earlier one
	var order []int
	for _, e := range ledger {
		switch e.Event {
		case "begin":
			began[e.Attempt] = e.Time
			if e.Job != job && !links[e.Job] { // a person has started this job
				clear(ends)
				order = nil
			}
			job = e.Job
		case "end":
			if e.Attempt == v.Attempt {
				continue // v replaces it
			}
			if _, again := ends[e.Attempt]; !again {
				order = append(order, e.Attempt)
			}
			ends[e.Attempt] = endOf(e, began[e.Attempt])
		case "requeue":
			h.requeues[Cause(e.Cause)]++
		case "refused": // Slurm refused the requeue before
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
		h.sameError = v.Error != "" && ends[attempt].err == v.Error
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
	found := end{cause: cause, saved: e.Saved, step: e.Step, nodes: union(e.Nodes, e.Node), trace: e.Trace, unfit: e.Unfit,
		err: e.Error}
	if e.Drain { // drained nodes may be back by now
		found.nodes = nil
	}
	if !began.IsZero() {
		found.lived = e.Time.Sub(began)
	}
	return found
}

// add adds one attempt's end to the history.
func (h *history) add(e end) {
	for _, name := range e.nodes {
		h.bad = append(h.bad, badNode{name, e.cause})
	}
	for _, name := range e.unfit { // whatever ended the attempt
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
	case e.cause == Preempt: // says nothing about the run's progress
	default:
		h.stalled++
	}
}

// comesAgain reports whether, and why, a worker's failure would come again after each restart. Either its last output says so, and
// no attempt has got further; or the same traceback has ended two attempts before they reported a step.
func (h history) comesAgain(v rundir.Verdict) (why string, again bool) {
	switch c := CauseOf(v); {
	case c != Crash && c != OOM:
		return "", false
	case v.Final && !h.began: // otherwise this node may lack what others have
		return fmt.Sprintf("%s, and no restart mends that: %s", causeText(v), cmp.Or(v.Advice, v.Error)), true
	case c == Crash && h.traces[v.Trace] > 1:
		const why = "%s, with the same traceback as before, and again before it reported a step: no restart mends that"
		return fmt.Sprintf(why, causeText(v)), true
	}
	return "", false
}

// stuck gives up a run that has made no progress in Policy.NoProgress attempts. It never does so if judge is false.
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

// DrainedBefore lists the nodes that earlier attempts left because Slurm drained them, since a person last submitted or resumed the
// run. A job that excludes these nodes since then may get them back.
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

// badNodes lists the nodes to exclude, sorted, each once: those that are blamed for a loss or a hang, those that Slurm drains now,
// those that failed a check, and a node that is blamed for crash after crash.
func (h history) badNodes() []string {
	const most = 64 // more than a job can spare; it also bounds the command line
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
	// one node that crashes name repeatedly, and no other
	for name, times := range crashes {
		if len(crashes) == 1 && times > 1 {
			names = append(names, name)
		}
	}
	names = names[max(0, len(names)-most):]
	slices.Sort(names)
	return slices.Compact(names)
}
