package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/blame"
)

// concludeAll is agent 0's end of a round: it settles the outcome ("done", where nobody said
// otherwise), decides what follows, puts the verdict on disk, and only then tells the others, so that
// none of them ends the job step before it is there. The plan is the next round's; nil: there is none.
func (s *supervisor) concludeAll(ctx, talkCtx context.Context) (rundir.Verdict, *plan, error) {
	r := s.round
	v, err := s.settle(talkCtx)
	if err != nil {
		return v, nil, err
	}
	v, deaths, chosen := s.account(v)
	v.Round, v.WarnedS, v.LeadS = r.plan.Round, s.sinceWarning(), r.m.leadS()
	next, v, follows := s.decide(ctx, s.withStep(s.markNodes(v)))
	v.Report = cmp.Or(s.explain(v, deaths, chosen, follows), v.Report)
	err = s.record(v)
	if next != nil && err == nil {
		err = r.m.proceed(talkCtx, r, next)
	}
	if err != nil && next != nil {
		v.Restart, next = false, nil
		if r.cfg.RunDir != nil { // where there may be another verdict
			err = errors.Join(err, finished("write the verdict", func() error { return r.cfg.RunDir.WriteVerdict(v) }))
		}
	}
	if told := setJSON(talkCtx, r.store, keyLast, last{Verdict: v, Next: next != nil}); told != nil {
		r.cfg.Log.Warn("the other agents cannot be told the verdict", "error", told)
	} else if next == nil {
		r.m.dismissAll(seat{Over: &last{Verdict: v}})
	}
	return v, next, err
}

// explain tells a person how the round ended, and what follows; "": there is nothing to tell.
func (s *supervisor) explain(v rundir.Verdict, deaths []blame.Death, chosen int, follows string) string {
	var told string
	if s.hung != nil && v.Cause == causeHang {
		told = s.hung.report(v.Message, s.reports)
	}
	switch {
	case chosen >= 0:
		deaths[chosen].Hint = s.round.hint(deaths[chosen])
		told += blame.Report(deaths, chosen, follows)
	case told != "" && follows != "":
		told += "next: " + follows + "\n"
	}
	return told
}

// proceed publishes the next round, whose attempt is claimed.
func (m *meeting) proceed(ctx context.Context, r *round, next *plan) error {
	if c := m.cfg; c.RunDir != nil {
		detail := fmt.Sprintf("restart %d in the job, after attempt %d", next.Round, r.plan.Attempt)
		err := errors.Join(
			c.RunDir.Append(rundir.Event{Time: now(), Event: rundir.EventRestart, Attempt: r.plan.Attempt, Detail: detail}),
			c.RunDir.Append(rundir.Event{Time: now(), Event: rundir.EventBegin, Attempt: next.Attempt, Job: c.JobID, Start: c.Restarts, Detail: detail}))
		if err != nil {
			return err
		}
	}
	if err := m.publish(ctx, next); err != nil {
		return err
	}
	if r.plan.Round == 0 {
		return nil
	}
	return m.forget(ctx, r.plan.Round-1) // all that are here have heard the end of it
}

// conclude is the end of a round at every other agent: the verdict, and whether there is another round, are agent 0's.
// Where that is lost, what this agent knows takes its place, and is put on disk if agent 0
// did not come to it.
func (s *supervisor) conclude(ctx context.Context) (rundir.Verdict, *plan, error) {
	switch {
	case s.last != nil && s.last.Next:
		next, err := s.round.m.planOf(ctx, s.round.plan.Round+1)
		return s.last.Verdict, next, s.round.m.lostOr(err)
	case s.last != nil:
		return s.last.Verdict, nil, nil
	case s.cfg.RunDir == nil:
		return *s.outcome, nil, nil
	}
	v, err := answered("read what the others say of the run's end", func() (rundir.Verdict, error) {
		v, err := s.cfg.RunDir.Verdict(s.cfg.Attempt)
		if errors.Is(err, os.ErrNotExist) && s.cfg.RunDir.Fence(s.cfg.Attempt) == nil {
			v = s.cfg.withStep(*s.outcome)
			v.Saved = false // whether the others have is not known
			return v, errNobodySaid
		}
		return v, err
	})
	switch {
	case errors.Is(err, errNobodySaid):
		err = s.record(v)
	case err != nil:
		return *s.outcome, nil, err
	}
	return v, nil, err
}

// errNobodySaid: there is no verdict, and this agent's is to be it.
var errNobodySaid = errors.New("there is no verdict")

// record is the last word on a round; what was written before is not to come after it.
func (s *supervisor) record(v rundir.Verdict) error {
	return finished("write the verdict", func() error {
		s.early.Wait()
		return s.cfg.record(v)
	})
}

// withStep is AgentConfig's, unless the file system does not answer.
func (s *supervisor) withStep(v rundir.Verdict) rundir.Verdict {
	told, err := answered("look for the last step", func() (rundir.Verdict, error) { return s.cfg.withStep(v), nil })
	if err != nil {
		s.cfg.Log.Warn("the last step is not known", "error", err)
		return v
	}
	return told
}

// withStep adds the last step that the attempt told of.
func (c AgentConfig) withStep(v rundir.Verdict) rundir.Verdict {
	if c.RunDir == nil {
		return v
	}
	step, err := c.RunDir.StepOf(c.Attempt)
	if err != nil {
		c.Log.Warn("the last step is not known", "error", err)
	}
	v.Step = max(v.Step, step)
	return v
}

// record writes the verdict and the ledger's line. An attempt that a newer one
// has superseded still has a verdict of its own to write.
func (c AgentConfig) record(v rundir.Verdict) error {
	if c.RunDir == nil {
		return nil
	}
	return errors.Join(c.RunDir.WriteVerdict(v), c.RunDir.Append(v.Event()))
}

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

// hint is for a rank 0 that wanted to serve at MASTER_PORT itself, where the agent serves PyTorch's store.
func (r *round) hint(d blame.Death) string {
	if !r.plan.TorchStore || d.Rank != 0 || !d.PortTaken() {
		return ""
	}
	return fmt.Sprintf("if it was to listen on MASTER_PORT (%d) itself, pass --torch-store=false (launch.torch_store = false in a job): "+
		"ddpbatch serves PyTorch's store there", r.plan.MasterPort)
}
