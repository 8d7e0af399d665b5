package recovery

import (
	"slices"
	"time"

	"ddpbatch/internal/rundir"
)

const (
	leadMemory = 5 // attempts that were warned, and count: a file system that hung once is forgotten again
	leadGrowth = 4 // times Policy.Lead, for attempts that did not end by themselves
)

// LeadFor is how long before the job's end an attempt is to be warned: Lead, or half as much again as an attempt before it took from
// its warning until its workers had ended, where that is more; longest is that attempt's time then, and else 0. Where it is more than Lead, it is
// no more than half of limit: how much of its time the job has left when that is asked, or may take in all; 0: not known.
//
// An attempt that went on until it was told to end, by the time limit as a rule, may have needed still longer. It may also be one of a program that
// goes on after a warning, which should not be warned ever earlier: its time counts, but the lead does not grow beyond a few times Lead for it.
func (p Policy) LeadFor(attempt int, history []rundir.Event, limit time.Duration) (lead, longest time.Duration) {
	if p.Lead <= 0 {
		return 0, 0
	}
	lead = p.Lead
	known := map[int]bool{}
	for _, e := range slices.Backward(history) {
		if e.Event != rundir.EventEnd || e.Attempt >= attempt || e.WarnedS <= 0 || known[e.Attempt] {
			continue
		}
		if known[e.Attempt] = true; len(known) > leadMemory {
			break
		}
		took := time.Duration(e.WarnedS * float64(time.Second))
		if needs := p.leadAfter(e, took); needs > lead {
			lead, longest = needs, took
		}
	}
	if most := max(p.Lead, limit/2); limit > 0 && lead > most {
		lead = most
	}
	if lead == p.Lead {
		longest = 0
	}
	return lead, longest
}

// leadAfter is the lead that an attempt would have needed which took so long after its warning.
func (p Policy) leadAfter(end rundir.Event, took time.Duration) time.Duration {
	needs := took + took/2
	switch {
	case !end.Saved && Cause(end.Cause) != Timeout: // it failed, or a person ended it
		return 0
	case !end.Saved || end.Signal != 0:
		return min(needs, leadGrowth*p.Lead)
	}
	return needs
}
