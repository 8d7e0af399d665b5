package recovery

import (
	"testing"
	"time"

	"ddpbatch/internal/rundir"
)

// warnedFor returns the end event of an attempt whose workers took the given time from their warning to their end.
func warnedFor(attempt int, took time.Duration, cause Cause, saved bool, signal int) rundir.Event {
	return rundir.Event{Event: rundir.EventEnd, Attempt: attempt, Cause: string(cause), Saved: saved, Signal: signal,
		WarnedS: took.Seconds()}
}

func TestLeadFor(t *testing.T) {
	const day, minute = 24 * time.Hour, time.Minute
	saved := func(attempt int, took time.Duration) rundir.Event { return warnedFor(attempt, took, Timeout, true, 0) }
	killed := func(attempt int, took time.Duration) rundir.Event {
		return warnedFor(attempt, took, Timeout, false, sigTERM)
	}
	for name, tc := range map[string]struct {
		history []rundir.Event
		limit   time.Duration // of the job
		want    time.Duration
		longest time.Duration // the time that is the reason; 0: want is the policy's lead
	}{
		"the first attempt":                       {nil, day, 2 * minute, 0},
		"saved with time to spare":                {[]rundir.Event{saved(1, minute)}, day, 2 * minute, 0},
		"saved with little time to spare":         {[]rundir.Event{saved(1, 100*time.Second)}, day, 150 * time.Second, 100 * time.Second},
		"the longest of several":                  {[]rundir.Event{saved(1, 10*minute), saved(2, 4*minute)}, day, 15 * minute, 10 * minute},
		"no more than half of the limit":          {[]rundir.Event{saved(1, 10*minute)}, 20 * minute, 10 * minute, 10 * minute},
		"a lead beyond half of the limit is kept": {[]rundir.Event{saved(1, 10*minute)}, 3 * minute, 2 * minute, 0},
		"a limit that is not known":               {[]rundir.Event{saved(1, 10*minute)}, 0, 15 * minute, 10 * minute},
		"the limit came before it had saved":      {[]rundir.Event{killed(1, 140*time.Second)}, day, 210 * time.Second, 140 * time.Second},
		"saved only when it was told to end": {[]rundir.Event{warnedFor(1, 130*time.Second, Timeout, true, sigTERM)}, day,
			195 * time.Second, 130 * time.Second},
		"a program that never ends at a warning": {[]rundir.Event{killed(1, 140*time.Second), killed(2, 4*minute), killed(3, 7*minute)},
			day, 8 * minute, 7 * minute},
		"nor before it is told to end": {[]rundir.Event{warnedFor(1, time.Hour, Preempt, true, sigTERM)}, day,
			8 * minute, time.Hour},
		"stopped by hand":             {[]rundir.Event{warnedFor(1, 20*minute, Saved, true, 0)}, day, 30 * minute, 20 * minute},
		"what failed tells nothing":   {[]rundir.Event{warnedFor(1, 20*minute, Crash, false, 0)}, day, 2 * minute, 0},
		"nor what a person ended":     {[]rundir.Event{warnedFor(1, 20*minute, Cancelled, false, sigTERM)}, day, 2 * minute, 0},
		"one that was never warned":   {[]rundir.Event{warnedFor(1, 0, Timeout, false, sigTERM)}, day, 2 * minute, 0},
		"its own end, and later ones": {[]rundir.Event{saved(9, 10*minute), saved(10, 10*minute)}, day, 2 * minute, 0},
		"a better known cause counts": {[]rundir.Event{saved(1, 10*minute), warnedFor(1, 10*minute, Cancelled, false, sigTERM)},
			day, 2 * minute, 0},
		"one long save is forgotten again": {
			[]rundir.Event{saved(1, time.Hour), saved(2, minute), saved(3, minute), warnedFor(4, 0, Node, false, 0), saved(5, minute),
				saved(6, minute), saved(7, minute)},
			day, 2 * minute, 0,
		},
	} {
		p := Policy{Lead: 2 * minute}
		if got, longest := p.LeadFor(9, tc.history, tc.limit); got != tc.want || longest != tc.longest {
			t.Errorf("%s: lead is %v for %v, want %v for %v", name, got, longest, tc.want, tc.longest)
		}
	}
	if got, _ := (Policy{}).LeadFor(9, []rundir.Event{saved(1, time.Hour)}, day); got != 0 {
		t.Errorf("a run that is not warned gets a lead of %v", got)
	}
}
