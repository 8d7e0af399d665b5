package launch

import (
	"context"
	"encoding/json"
	"fmt"

	"ddpbatch/internal/rundir"
)

// settle is the outcome that the agents agreed on, or else what agent 0 knows when all agents have reported or are lost.
func (s *supervisor) settle(ctx context.Context) (v rundir.Verdict, err error) {
	text, err := json.Marshal(s.known())
	if err != nil {
		return v, err
	}
	if text, err = s.round.store.CompareSet(ctx, keyOutcome, nil, text); err != nil {
		return v, fmt.Errorf("settle the run's outcome: %w", err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, fmt.Errorf("read the run's outcome: %w", err)
	}
	return v, nil
}

// known is the outcome as far as agent 0 knows. What it proposed may still be on its way to the store; and an agent that
// has not reported was lost with its work, however the others' workers ended.
func (s *supervisor) known() rundir.Verdict {
	r := s.round
	switch {
	case s.mine != nil:
		return *s.mine
	case s.suspect != nil:
		return *s.suspect
	}
	for _, g := range r.plan.guests {
		if _, reported := s.reports[g.index]; !reported {
			return r.cfg.lostOutcome(&LostError{Agent: g.index, Host: g.join.Host, Why: r.m.roster.whyLost(g)})
		}
	}
	return r.cfg.doneOutcome(r.plan.World)
}

// whyLost is why an agent that has not reported is lost.
func (r *roster) whyLost(g *guest) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return g.why
}
