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
	for _, g := range s.round.plan.guests {
		r, reported := s.reports[g.index]
		switch {
		case !reported:
			s.round.m.dismiss(g, "its workers were waited for in vain")
		case r.Stuck > 0:
			s.round.m.dismiss(g, fmt.Sprintf("%d processes of its workers do not end, even by KILL", r.Stuck))
		default:
			continue
		}
		v.Nodes = append(v.Nodes, g.join.Host)
	}
	slices.Sort(v.Nodes)
	v.Nodes = slices.Compact(v.Nodes)
	return s.isolated(v, stood)
}

// decide says what follows a round, at agent 0: another one, of which it makes the plan, or nothing; and why, for
// people.
func (s *supervisor) decide(ctx context.Context, v rundir.Verdict) (next *plan, _ rundir.Verdict, why string) {
	r := s.round
	var history []rundir.Event
	if r.cfg.RunDir != nil {
		var err error
		if history, err = answered("read the ledger", r.cfg.RunDir.Ledger); err != nil {
			r.cfg.Log.Warn("what the run has done before is not known", "error", err)
		}
	}
	d := recovery.Decide(r.cfg.Policy, history, v, s.hasRoom(ctx), r.plan.Round)
	if d.Action != recovery.Restart {
		return nil, v, "" // whether the job is requeued is for the batch script to say
	}
	attempt, err := r.claimNext()
	if errors.Is(err, rundir.ErrSuperseded) {
		v.Exit, v.Requeue = exitNoRequeue, false
	}
	if err == nil {
		next, err = r.m.layRound(r.plan.Round+1, attempt)
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
	case <-r.m.warned: // the job is about to end
		return false
	default:
	}
	return ctx.Err() == nil && s.reports[0].Stuck == 0 && 1+len(r.m.roster.seated()) >= r.cfg.MinCount
}

// claimNext claims the attempt after this round's, so that whatever is left of this one is fenced off. It
// fails where another job has claimed it: then this one is what is left.
func (r *round) claimNext() (int, error) {
	if r.cfg.RunDir == nil {
		return r.plan.Attempt, nil
	}
	return answered("claim the next attempt", func() (int, error) { return r.cfg.RunDir.ClaimAfter(r.plan.Attempt) })
}
