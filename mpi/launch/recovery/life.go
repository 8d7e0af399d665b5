package recovery

import (
	"fmt"
	"slices"
	"time"

	"ddpbatch/internal/rundir"
)

// shortLife is how long an attempt lives at least of which it may be believed that it got on, where nobody counts its steps: a
// command of the user's, say. It is longer than what large models take to load.
const shortLife = 5 * time.Minute

// life is what a ledger tells of a run, the present attempt included.
type life struct {
	policy     Policy
	requeues   map[Cause]int // taken so far, by the cause that they count as; over all of the run
	row        int           // attempts, up to the present one, that came no further; since a person last had a hand in it
	furthest   int64         // step, since then
	stepsKnown bool
	saved      bool // the last attempt did
	bad        []badNode
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
}

// lifeOf reads a ledger, and v as the last attempt's end.
func lifeOf(p Policy, history []rundir.Event, v rundir.Verdict) life {
	l := life{policy: p, requeues: map[Cause]int{}}
	began, job := map[int]time.Time{}, ""
	ends := map[int]end{} // by attempt: a refined verdict replaces the one before
	var order []int
	for _, e := range history {
		switch e.Event {
		case "begin":
			began[e.Attempt] = e.Time
			if e.Job != job { // of another id, so that a person has started it
				clear(ends)
				order, job = nil, e.Job
			}
		case "end":
			if e.Attempt == v.Attempt {
				continue // v says it better
			}
			if _, again := ends[e.Attempt]; !again {
				order = append(order, e.Attempt)
			}
			ends[e.Attempt] = endOf(e, began[e.Attempt])
		case "requeue":
			l.requeues[Cause(e.Cause).Current()]++
		case "refused": // the requeue before it
			c := Cause(e.Cause).Current()
			l.requeues[c] = max(0, l.requeues[c]-1)
		case "submit", "resume":
			clear(ends)
			order = nil
		}
	}
	for _, attempt := range order {
		l.add(ends[attempt])
	}
	last := end{cause: CauseOf(v), saved: v.Saved, step: v.Step, nodes: nodesOf(v)}
	if at, ok := began[v.Attempt]; ok {
		last.lived = v.Time.Sub(at)
	}
	l.add(last)
	return l
}

func endOf(e rundir.Event, began time.Time) end {
	cause := Cause(e.Cause).Current()
	found := end{cause: cause, saved: e.Saved, step: e.Step, nodes: e.Nodes}
	if e.Node != "" && !slices.Contains(found.nodes, e.Node) {
		found.nodes = append(slices.Clone(found.nodes), e.Node)
	}
	if !began.IsZero() {
		found.lived = e.Time.Sub(began)
	}
	return found
}

// nodesOf are the nodes that v blames.
func nodesOf(v rundir.Verdict) []string {
	nodes := slices.Clone(v.Nodes)
	if v.Host != "" && !slices.Contains(nodes, v.Host) {
		nodes = append(nodes, v.Host)
	}
	return nodes
}

// add takes one more attempt's end into account.
func (l *life) add(e end) {
	for _, name := range e.nodes {
		l.bad = append(l.bad, badNode{name, e.cause})
	}
	l.saved = e.saved
	progress := e.step > l.furthest
	if e.step > 0 {
		l.stepsKnown = true
	}
	if !l.stepsKnown {
		progress = e.lived >= l.policy.credit(e.saved)
	}
	l.furthest = max(l.furthest, e.step)
	switch {
	case e.cause == Done, progress:
		l.row = 0
	case e.cause == Preempt: // which tells nothing about the run
	default:
		l.row++
	}
}

// stuck gives up on a run that came no further in so many attempts, where judge is true.
func (l life) stuck(p Policy, judge bool) (Decision, bool) {
	if !judge || l.row < p.patience() {
		return Decision{}, false
	}
	where := fmt.Sprintf("beyond step %d", l.furthest)
	if !l.stepsKnown {
		where = fmt.Sprintf("through their first %v", l.policy.credit(l.saved))
	}
	return Decision{Action: GiveUp, Why: fmt.Sprintf("no progress: %d attempts in a row did not get %s", l.row, where)}, true
}

// badNodes are those that a lost node or a hang is blamed on, and that which crash after crash is blamed on. Sorted, each once.
func (l life) badNodes() []string {
	const most = 64 // more than any job can do without; also bounds the command line
	var names []string
	crashes := map[string]int{}
	for _, b := range l.bad {
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
