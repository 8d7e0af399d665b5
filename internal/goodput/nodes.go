package goodput

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
)

const (
	halfLife  = 7 * 24 * time.Hour // after this time a node's failure counts half: the node may have been repaired
	sameEvent = 10 * time.Minute   // failures of a node that are at most this far apart count as one: all runs lost the node at once
	oftenFrom = 1.5                // the score of two failures in some three days
)

// NodeFailures says how often a node failed in the runs of one user.
type NodeFailures struct {
	Node     string    `json:"node"`
	Cluster  string    `json:"cluster,omitempty"` // empty: the default one
	Failures int       `json:"failures"`          // at least ten minutes apart
	Score    float64   `json:"score"`             // a failure counts 1, one a week ago counts 1/2, and so on
	Last     time.Time `json:"last"`
}

// Often reports whether the node has failed more than once, and lately.
func (n NodeFailures) Often() bool { return n.Failures > 1 && n.Score >= oftenFrom }

// Nodes counts failures of nodes over several runs.
type Nodes struct {
	From     time.Time // failures before this time do not count; zero: all count
	failures map[node][]time.Time
}

type node struct{ name, cluster string }

// AddAll calls Add for a run and for its elements.
func (n *Nodes) AddAll(run *rundir.Dir) error {
	elements, err := run.Elements()
	for _, d := range append(elements, run) {
		err = errors.Join(err, n.Add(d))
	}
	return err
}

// Add counts the failures in the ledger of a run, or of an array's element, for which a node was blamed because it was lost or workers hung
// on it. It also counts, once for each start of a job, the nodes that failed a check, whether or not the run went on without them.
// Simulated nodes do not count.
func (n *Nodes) Add(run *rundir.Dir) error {
	if run.Spec().Kind != "slurm" {
		return nil
	}
	events, err := run.Ledger()
	if err != nil {
		return err
	}
	ends := map[int]rundir.Event{}    // the last end of each attempt, which has the better known cause
	checked := map[int]rundir.Event{} // for each attempt, the first beginning in its start of the job, when nodes are checked
	var start rundir.Event
	for _, e := range events {
		switch e.Event {
		case rundir.EventBegin:
			if start.Event == "" || e.Job != start.Job || e.Start != start.Start {
				start = e
			}
			checked[e.Attempt] = start
		case rundir.EventEnd:
			ends[e.Attempt] = e
		}
	}
	for attempt, e := range ends {
		for _, name := range e.Unfit {
			n.add(node{name, run.Cluster()}, cmp.Or(checked[attempt].Time, e.Time)) // the ledger may lack the beginning
		}
		if cause := recovery.Cause(e.Cause); cause != recovery.Node && cause != recovery.Hang || e.Drain {
			continue
		}
		names := e.Nodes
		if e.Node != "" && !slices.Contains(names, e.Node) {
			names = append(slices.Clone(names), e.Node)
		}
		for _, name := range names {
			if !slices.Contains(e.Unfit, name) {
				n.add(node{name, run.Cluster()}, e.Time)
			}
		}
	}
	return nil
}

func (n *Nodes) add(failed node, at time.Time) {
	if at.Before(n.From) {
		return
	}
	if n.failures == nil {
		n.failures = map[node][]time.Time{}
	}
	n.failures[failed] = append(n.failures[failed], at)
}

// Failed returns the nodes that have failed, the one with the highest score first.
func (n *Nodes) Failed(now time.Time) []NodeFailures {
	all := []NodeFailures{} // [] in JSON
	for failed, times := range n.failures {
		f := NodeFailures{Node: failed.name, Cluster: failed.cluster}
		slices.SortFunc(times, time.Time.Compare)
		for _, at := range times {
			if f.Failures == 0 || at.Sub(f.Last) > sameEvent {
				f.Failures++
				f.Score += math.Exp2(-max(0, now.Sub(at)).Hours() / halfLife.Hours())
			}
			f.Last = at
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b NodeFailures) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Cluster, b.Cluster))
	})
	return all
}

// FailedOften returns the nodes of a cluster ("": the default one) that failed often recently, according to the ledgers of runs. It reads
// at most the given number of ledgers, and ignores those that it cannot read.
func FailedOften(runs []*rundir.Dir, ledgers int, cluster string, now time.Time) (often []NodeFailures) {
	var nodes Nodes
	for _, run := range runs {
		elements, _ := run.Elements()
		for _, d := range append([]*rundir.Dir{run}, elements...) {
			if ledgers--; ledgers < 0 {
				break
			}
			_ = nodes.Add(d)
		}
	}
	for _, f := range nodes.Failed(now) {
		if f.Often() && f.Cluster == cluster {
			often = append(often, f)
		}
	}
	return often
}
