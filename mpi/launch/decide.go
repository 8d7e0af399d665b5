package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
)

// markNodes names the hosts of agents that were lost in the round, or whose workers do not end, and drops those
// agents that are still connected: none of them has a part in what follows.
func (s *supervisor) markNodes(v rundir.Verdict) rundir.Verdict {
	stood := s.stoodLately() // whoever is dismissed here is lost for another reason
	for _, p := range s.round.layout.participants {
		r, reported := s.reports[p.index]
		switch {
		case !reported:
			s.round.rdzv.dismiss(p, "its workers were waited for in vain")
		case r.Stuck > 0:
			s.round.rdzv.dismiss(p, fmt.Sprintf("%d processes of its workers do not end, even by KILL", r.Stuck))
		default:
			continue
		}
		v.Nodes = append(v.Nodes, p.join.Host)
	}
	slices.Sort(v.Nodes)
	v.Nodes = slices.Compact(v.Nodes)
	return s.blameIsolatedAgent0(v, stood)
}

// decide says what follows a round, at agent 0: another one, of which it makes the layout, or nothing; and why, for
// people.
func (s *supervisor) decide(ctx context.Context, v rundir.Verdict) (next *layout, _ rundir.Verdict, why string) {
	r := s.round
	var history []rundir.Event
	if r.cfg.RunDir != nil {
		var err error
		if history, err = callFS("read the ledger", r.cfg.RunDir.Ledger); err != nil {
			r.cfg.Log.Warn("what the run has done before is not known", "error", err)
		}
	}
	d := recovery.Decide(r.cfg.Policy, history, v, s.hasRoom(ctx), r.layout.Round)
	if d.Action != recovery.Restart {
		return nil, v, "" // whether the job is requeued is for the batch script to say
	}
	attempt, err := r.claimNext()
	if errors.Is(err, rundir.ErrSuperseded) {
		v.Exit, v.Requeue = exitNoRequeue, false
	}
	if err == nil {
		next, err = r.rdzv.newLayout(r.layout.Round+1, attempt)
	}
	if err != nil {
		v.Message += "; the workers are not started again: " + err.Error()
		return nil, v, "the workers are not started again: " + err.Error()
	}
	v.Restart = true
	r.cfg.Log.Warn("the workers are started again", "why", d.Why, "message", v.Message, "agents", len(next.Members))
	return next, v, d.Why
}

// hasRoom is whether another round can follow this one in the job.
func (s *supervisor) hasRoom(ctx context.Context) bool {
	r := s.round
	select {
	case <-r.rdzv.warned: // the job is about to end
		return false
	default:
	}
	return ctx.Err() == nil && s.reports[0].Stuck == 0 && 1+len(r.rdzv.membership.withNumbers()) >= r.cfg.MinCount
}

// claimNext claims the attempt after this round's, so that whatever is left of this one is fenced off. It
// fails where another job has claimed it: then this one is what is left.
func (r *round) claimNext() (int, error) {
	if r.cfg.RunDir == nil {
		return r.layout.Attempt, nil
	}
	return callFS("claim the next attempt", func() (int, error) { return r.cfg.RunDir.ClaimAfter(r.layout.Attempt) })
}

// blameIsolatedAgent0 turns the blame for lost agents to agent 0's own node where it belongs there. An agent 0 that is cut off, or was stopped for a
// while, has lost all others at once, and they have lost it; healthy nodes that it blamed would be excluded from what follows. That one
// node has failed is more likely than that most of them have. Of two nodes neither can know. stood is stoodLately.
func (s *supervisor) blameIsolatedAgent0(v rundir.Verdict, stood bool) rundir.Verdict {
	r, own := s.round, s.cfg.Host
	var hosts []string
	for _, m := range r.layout.Members {
		hosts = append(hosts, m.Host)
	}
	slices.Sort(hosts)
	nodes := len(slices.Compact(hosts))
	silent := len(r.rdzv.membership.silent(r.layout.participants, own))
	var why string
	switch {
	case len(v.Nodes) == 0:
		return v
	case stood:
		if said, ok := s.othersVerdict(v); ok {
			return said
		}
		why = fmt.Sprintf("agent 0 on %s did not run for %v, and the others have given it up", own, standstill)
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

// othersVerdict is v with what the others have said of why the run ended; false: they said nothing that overrules it. How the workers ended that agent 0
// knows of, and that one of them forbids another attempt, stays.
func (s *supervisor) othersVerdict(v rundir.Verdict) (rundir.Verdict, bool) {
	if v.Cause != causeCancelled || s.cfg.RunDir == nil {
		return v, false
	}
	said, err := callFS("read what the others say of the run's end", func() (rundir.Verdict, error) { return s.cfg.RunDir.Verdict(s.cfg.Attempt) })
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
	return s.round.rdzv.membership.stood(s.round.layout.participants, s.round.rdzv.stoodStillAt.Load())
}
