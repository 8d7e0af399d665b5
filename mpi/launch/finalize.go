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

// finalizeAll is agent 0's end of a round: it finalizes the outcome ("done", where nobody said
// otherwise), decides what follows, puts the verdict on disk, and only then tells the others, so that
// none of them ends the job step before it is there. The layout is the next round's; nil: there is none.
func (s *supervisor) finalizeAll(ctx, controlCtx context.Context) (rundir.Verdict, *layout, error) {
	r := s.round
	v, err := s.finalizeOutcome(controlCtx)
	if err != nil {
		return v, nil, err
	}
	v, deaths, chosen := s.account(v)
	v.Round, v.WarnedS, v.LeadS = r.layout.Round, s.sinceWarning(), r.rdzv.leadS()
	next, v, follows := s.decide(ctx, s.withStep(s.markNodes(v)))
	v.Report = cmp.Or(s.explain(v, deaths, chosen, follows), v.Report)
	err = s.record(v)
	if next != nil && err == nil {
		err = r.rdzv.proceed(controlCtx, r, next)
	}
	if err != nil && next != nil {
		v.Restart, next = false, nil
		if r.cfg.RunDir != nil { // where there may be another verdict
			err = errors.Join(err, doFS("write the verdict", func() error { return r.cfg.RunDir.WriteVerdict(v) }))
		}
	}
	if err := setJSON(controlCtx, r.store, keyLast, lastWord{Verdict: v, Next: next != nil}); err != nil {
		r.cfg.Log.Warn("the other agents cannot be told the verdict", "error", err)
	} else if next == nil {
		r.rdzv.closeAdmission(assignment{Over: &lastWord{Verdict: v}})
	}
	return v, next, err
}

// explain tells a person how the round ended, and what follows; "": there is nothing to tell.
func (s *supervisor) explain(v rundir.Verdict, deaths []blame.Death, chosen int, follows string) string {
	var text string
	if s.hung != nil && v.Cause == causeHang {
		text = s.hung.report(v.Message, s.reports)
	}
	switch {
	case chosen >= 0:
		deaths[chosen].Hint = s.round.hint(deaths[chosen])
		text += blame.Report(deaths, chosen, follows)
	case text != "" && follows != "":
		text += "next: " + follows + "\n"
	}
	return text
}

// proceed publishes the next round, whose attempt is claimed.
func (m *rendezvous) proceed(ctx context.Context, r *round, next *layout) error {
	if c := m.cfg; c.RunDir != nil {
		detail := fmt.Sprintf("restart %d in the job, after attempt %d", next.Round, r.layout.Attempt)
		err := errors.Join(
			c.RunDir.Append(rundir.Event{Time: now(), Event: rundir.EventRestart, Attempt: r.layout.Attempt, Detail: detail}),
			c.RunDir.Append(rundir.Event{Time: now(), Event: rundir.EventBegin, Attempt: next.Attempt, Job: c.JobID, Start: c.Restarts, Detail: detail}))
		if err != nil {
			return err
		}
	}
	if err := m.publish(ctx, next); err != nil {
		return err
	}
	if r.layout.Round == 0 {
		return nil
	}
	return m.forget(ctx, r.layout.Round-1) // all that are here have heard the end of it
}

// finalize is the end of a round at every other agent: the verdict, and whether there is another round, are agent 0's.
// Where that is lost, what this agent knows takes its place, and is put on disk if agent 0
// did not come to it.
func (s *supervisor) finalize(ctx context.Context) (rundir.Verdict, *layout, error) {
	switch {
	case s.last != nil && s.last.Next:
		next, err := s.round.rdzv.awaitLayout(ctx, s.round.layout.Round+1)
		return s.last.Verdict, next, s.round.rdzv.lostOr(err)
	case s.last != nil:
		return s.last.Verdict, nil, nil
	case s.cfg.RunDir == nil:
		return *s.outcome, nil, nil
	}
	v, err := callFS("read what the others say of the run's end", func() (rundir.Verdict, error) {
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
	return doFS("write the verdict", func() error {
		s.writes.Wait()
		return s.cfg.record(v)
	})
}

// withStep is AgentConfig's, unless the file system does not answer.
func (s *supervisor) withStep(v rundir.Verdict) rundir.Verdict {
	text, err := callFS("look for the last step", func() (rundir.Verdict, error) { return s.cfg.withStep(v), nil })
	if err != nil {
		s.cfg.Log.Warn("the last step is not known", "error", err)
		return v
	}
	return text
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

// finalizeOutcome is the outcome that the agents agreed on, or else what agent 0 knows when all agents have reported or are lost.
func (s *supervisor) finalizeOutcome(ctx context.Context) (v rundir.Verdict, err error) {
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
	for _, p := range r.layout.participants {
		if _, reported := s.reports[p.index]; !reported {
			return r.cfg.lostOutcome(&LostError{Agent: p.index, Host: p.join.Host, Why: r.rdzv.membership.whyLost(p)})
		}
	}
	return r.cfg.doneOutcome(r.layout.World)
}

// hint is for a rank 0 that wanted to serve at MASTER_PORT itself, where the agent serves PyTorch's store.
func (r *round) hint(d blame.Death) string {
	if !r.layout.TorchStore || d.Rank != 0 || !d.PortTaken() {
		return ""
	}
	return fmt.Sprintf("if it was to listen on MASTER_PORT (%d) itself, pass --torch-store=false (launch.torch_store = false in a job): "+
		"ddpbatch serves PyTorch's store there", r.layout.MasterPort)
}
