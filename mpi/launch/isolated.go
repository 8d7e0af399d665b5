package launch

import (
	"fmt"
	"slices"
	"time"

	"ddpbatch/internal/rundir"
)

// isolated turns the blame for lost agents to agent 0's own node where it belongs there. An agent 0 that is cut off, or was stopped for a
// while, has lost all others at once, and they have lost it; healthy nodes that it blamed would be excluded from what follows. That one
// node has failed is more likely than that most of them have. Of two nodes neither can know. stood is stoodLately.
func (s *supervisor) isolated(v rundir.Verdict, stood bool) rundir.Verdict {
	r, own := s.round, s.cfg.Host
	var hosts []string
	for _, m := range r.plan.Members {
		hosts = append(hosts, m.Host)
	}
	slices.Sort(hosts)
	nodes := len(slices.Compact(hosts))
	silent := len(r.m.roster.silent(r.plan.guests, own))
	var why string
	switch {
	case len(v.Nodes) == 0:
		return v
	case stood:
		if said, ok := s.givenUp(v); ok {
			return said
		}
		why = fmt.Sprintf("agent 0 on %s did not run for %v, and the others have given it up", own, stoodStill)
	case 2*silent > nodes:
		why = fmt.Sprintf("agent 0 on %s lost %d of the other %d nodes at once: it seems to be cut off itself", own, silent, nodes-1)
	default:
		return v
	}
	v.Nodes = []string{own}
	if v.Cause == causeNode {
		v.Host, v.Message = own, why+" ("+v.Message+")"
	}
	return v
}

// givenUp is v with what the others have said of why the run ended; false: they said nothing that overrules it. How the workers ended that agent 0
// knows of, and that one of them forbids another attempt, stays.
func (s *supervisor) givenUp(v rundir.Verdict) (rundir.Verdict, bool) {
	if v.Cause != causeCancelled || s.cfg.RunDir == nil {
		return v, false
	}
	said, err := answered("read what the others say of the run's end", func() (rundir.Verdict, error) { return s.cfg.RunDir.Verdict(s.cfg.Attempt) })
	if err != nil || !s.cfg.overruled(v, said) {
		return v, false // most likely all of them were told to end
	}
	mine := v
	v.Cause, v.Host, v.Nodes, v.Signal, v.Message, v.Report = said.Cause, said.Host, said.Nodes, said.Signal, said.Message, said.Report
	if mine.Exit == exitNoRequeue { // see never
		v.Message += " (" + mine.Message + ")"
	} else {
		v.Exit, v.Requeue = said.Exit, said.Requeue
	}
	return v, true
}

// overruled tells whether what another agent said holds, and not v of agent 0, which c is for: the others had given it up, and it was woken up to
// be told to end. Slurm tells it so because they have ended.
func (c AgentConfig) overruled(v, said rundir.Verdict) bool {
	return v.Cause == causeCancelled && said.Cause == causeNode && said.Host == c.Host
}

// stoodLately tells whether agent 0 stood still shortly before it lost another; an older standstill, as when the whole job was suspended, has
// nothing to do with it.
func (s *supervisor) stoodLately() bool {
	return s.round.m.roster.stood(s.round.plan.guests, s.round.m.stood.Load())
}

// stood tells whether this agent stood still just before it lost one of the guests, or about then at, which may be nil.
func (r *roster) stood(guests []*guest, at *time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(guests, func(g *guest) bool {
		return !g.lostAt.IsZero() &&
			(!g.looked.IsZero() && g.lostAt.Sub(g.looked) >= stoodStill || at != nil && g.lostAt.Sub(*at).Abs() <= 2*stoodStill)
	})
}

// silent lists the nodes, less own, whose agents were lost without their connection's having ended.
func (r *roster) silent(guests []*guest, own string) (hosts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range guests {
		if g.isGone() && g.why == silence && g.join.Host != own {
			hosts = append(hosts, g.join.Host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
