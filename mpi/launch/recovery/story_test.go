package recovery

import (
	"slices"
	"time"

	"ddpbatch/internal/rundir"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// story builds a ledger from a few words.
type story struct {
	events  []rundir.Event
	attempt int
	now     time.Time
	lastJob string // of the last attempt
}

// inJob sets the job that began all attempts so far.
func (s *story) inJob(job string) *story {
	for i := range s.events {
		if s.events[i].Event == rundir.EventBegin {
			s.events[i].Job = job
		}
	}
	return s
}

// lastIn sets the job that begins the last attempt.
func (s *story) lastIn(job string) *story {
	s.lastJob = job
	return s
}

// lived adds an attempt that lived for d and ended with the given cause, step and node.
func (s *story) lived(d time.Duration, cause Cause, step int64, node string) *story {
	if s.now.IsZero() {
		s.now = noon
	}
	s.attempt++
	s.events = append(s.events, rundir.Event{Time: s.now, Event: rundir.EventBegin, Attempt: s.attempt})
	s.now = s.now.Add(d)
	s.events = append(s.events, rundir.Event{Time: s.now, Event: rundir.EventEnd, Attempt: s.attempt, Cause: string(cause),
		Step: step, Node: node})
	return s
}

// then adds an event of the last attempt.
func (s *story) then(event string, cause Cause) *story {
	s.events = append(s.events, rundir.Event{Time: s.now, Event: event, Attempt: s.attempt, Cause: string(cause)})
	return s
}

// requeued adds n attempts that ended for cause, each with a requeue.
func (s *story) requeued(n int, cause Cause, step int64) *story {
	for i := range n {
		s.lived(time.Hour, cause, step*int64(i+1), "").then(rundir.EventRequeue, cause)
	}
	return s
}

// last returns the ledger with the beginning of one more attempt, and v as the verdict of that attempt, which lived for an hour.
func (s *story) last(v rundir.Verdict) ([]rundir.Event, rundir.Verdict) {
	if s.now.IsZero() {
		s.now = noon
	}
	v.Attempt, v.Time = s.attempt+1, s.now.Add(time.Hour)
	return append(slices.Clip(s.events), rundir.Event{Time: s.now, Event: rundir.EventBegin, Attempt: v.Attempt, Job: s.lastJob}), v
}

// leftOut adds an attempt that was preempted, and that went on without a node that had failed a check.
func (s *story) leftOut(node string) *story {
	s.lived(time.Hour, Preempt, 1, "")
	s.events[len(s.events)-1].Unfit = []string{node}
	return s
}

// drainedBefore adds an attempt that saved because Slurm drained a node.
func (s *story) drainedBefore(node string) *story {
	s.lived(time.Hour, Node, 1, node)
	s.events[len(s.events)-1].Drain, s.events[len(s.events)-1].Nodes = true, []string{node}
	return s
}

func ended(c Cause) rundir.Verdict {
	v := rundir.Verdict{Cause: string(c), Exit: 1, FirstRank: -1}
	if c == Done {
		v.Exit = 0
	}
	return v
}

func savedFor(c Cause, step int64) rundir.Verdict {
	return rundir.Verdict{Cause: string(c), Exit: 75, Saved: true, Step: step}
}

// drainedOf returns the verdict of workers that saved because Slurm drains a node.
func drainedOf(node string) rundir.Verdict {
	v := savedFor(Node, 7)
	v.Drain, v.Host, v.Nodes = true, node, []string{node}
	return v
}
