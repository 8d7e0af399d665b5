package goodput

import (
	"cmp"
	"encoding/json"
	"maps"
	"time"
)

// Anew is the key of Breakdown.Lost for steps that were done again because a person asked to begin anew (checkpoint.resume = "never").
const Anew = "anew"

// Breakdown says where the time of a run went. Its parts are disjoint, and Total is their sum: the time in which the run waited for a job
// or had one. For an array each part is the sum over its elements.
type Breakdown struct {
	Queued     time.Duration            // from a submission, or a requeue, to the job's start
	Starting   time.Duration            // from a job's start to its first step: rendezvous, imports, loading a checkpoint
	Productive time.Duration            // training whose steps were not done again by a later attempt
	Saving     time.Duration            // interruptions of such training for saves
	Lost       map[string]time.Duration // lost time by the cause of the attempt's end (a recovery.Cause), or Anew; nil if there is none
	Unknown    time.Duration            // attempts ran, but their metrics do not say what they did
	Other      time.Duration            // the last save, exports, and the end of workers that are done

	Open  bool          // a job is pending or running, according to the ledger
	Idle  time.Duration // between the run's end and its resume: not a part of Total
	Nodes int           // of the newest attempt or, before the first, as many as the run asks for; of an array the largest number
	Why   string        // why some of the time is Unknown: "the run wrote no metrics"; "" if none is

	byNodes []Breakdown // the time of the attempts that had Nodes nodes each; their sum is the whole. nil: all had Nodes
}

// LostTime returns the sum of the lost time.
func (b Breakdown) LostTime() (sum time.Duration) {
	for _, lost := range b.Lost {
		sum += lost
	}
	return sum
}

// Running returns the time in which the run had its nodes.
func (b Breakdown) Running() time.Duration {
	return b.Starting + b.Productive + b.Saving + b.LostTime() + b.Unknown + b.Other
}

// Total returns the sum of all parts.
func (b Breakdown) Total() time.Duration { return b.Queued + b.Running() }

// NodeHours returns the time of a part, or of a sum of parts, multiplied by the nodes of the attempts, in hours. The run does not hold
// nodes while it is queued.
func (b Breakdown) NodeHours(part func(Breakdown) time.Duration) (hours float64) {
	for _, same := range b.split() {
		hours += part(same).Hours() * float64(same.Nodes)
	}
	return hours
}

// split returns the time by how many nodes the attempts had.
func (b Breakdown) split() []Breakdown {
	if b.byNodes == nil {
		return []Breakdown{b}
	}
	return b.byNodes
}

// Share returns which share of whole was productive, 0 to 1. whole is Running (goodput) or Total (ETTR). ok is false if the share is
// unknown.
func (b Breakdown) Share(whole time.Duration) (share float64, ok bool) {
	if whole <= 0 || b.Unknown > 0 {
		return 0, false
	}
	return b.Productive.Seconds() / whole.Seconds(), true
}

// Add adds the parts of another run, or of an element. It does not change Nodes.
func (b *Breakdown) Add(o Breakdown) {
	if b.byNodes == nil && b.Total() > 0 {
		b.byNodes = []Breakdown{*b} // Lost is replaced below
	}
	b.byNodes = append(b.byNodes, o.split()...)
	b.Queued += o.Queued
	b.Starting += o.Starting
	b.Productive += o.Productive
	b.Saving += o.Saving
	b.Unknown += o.Unknown
	b.Other += o.Other
	b.Idle += o.Idle
	b.Open = b.Open || o.Open
	b.Why = cmp.Or(b.Why, o.Why)
	if len(o.Lost) > 0 {
		b.Lost = maps.Clone(b.Lost) // b may be a copy
	}
	for cause, lost := range o.Lost {
		b.lose(cause, lost)
	}
}

func (b *Breakdown) lose(cause string, lost time.Duration) {
	if lost <= 0 {
		return
	}
	if b.Lost == nil {
		b.Lost = map[string]time.Duration{}
	}
	b.Lost[cause] += lost
}

// wire is a Breakdown in JSON. Its names must not change (docs/cli/status.md).
type wire struct {
	TotalS      float64            `json:"total_s"`
	QueuedS     float64            `json:"queued_s"`
	StartingS   float64            `json:"starting_s"`
	ProductiveS float64            `json:"productive_s"`
	SavingS     float64            `json:"saving_s"`
	LostS       map[string]float64 `json:"lost_s"`
	UnknownS    float64            `json:"unknown_s"`
	OtherS      float64            `json:"other_s"`
	IdleS       float64            `json:"idle_s"`
	Goodput     *float64           `json:"goodput"`
	ETTR        *float64           `json:"ettr"`
	Nodes       int                `json:"nodes"`
	NodeHours   float64            `json:"node_hours"`
}

// MarshalJSON writes durations in seconds.
func (b Breakdown) MarshalJSON() ([]byte, error) {
	w := wire{
		TotalS: b.Total().Seconds(), QueuedS: b.Queued.Seconds(), StartingS: b.Starting.Seconds(), ProductiveS: b.Productive.Seconds(),
		SavingS: b.Saving.Seconds(), LostS: map[string]float64{}, UnknownS: b.Unknown.Seconds(), OtherS: b.Other.Seconds(),
		IdleS: b.Idle.Seconds(), Nodes: b.Nodes, NodeHours: b.NodeHours(Breakdown.Running),
	}
	for cause, lost := range b.Lost {
		w.LostS[cause] = lost.Seconds()
	}
	if share, ok := b.Share(b.Running()); ok {
		w.Goodput = &share
	}
	if share, ok := b.Share(b.Total()); ok {
		w.ETTR = &share
	}
	return json.Marshal(w)
}
