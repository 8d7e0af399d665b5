package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"ddpbatch/internal/rundir"
)

// concludeAll is agent 0's end: it settles the outcome ("done", where nobody said
// otherwise), puts the verdict on disk, and only then tells the others, so that
// none of them ends the job step before it is there.
func concludeAll(ctx context.Context, c AgentConfig, m *meeting) (rundir.Verdict, error) {
	text, err := json.Marshal(c.doneOutcome(m.plan.World))
	if err != nil {
		return rundir.Verdict{}, err
	}
	if text, err = m.store.CompareSet(ctx, keyOutcome, nil, text); err != nil {
		return rundir.Verdict{}, fmt.Errorf("settle the run's outcome: %w", err)
	}
	var v rundir.Verdict
	if err := json.Unmarshal(text, &v); err != nil {
		return rundir.Verdict{}, fmt.Errorf("read the run's outcome: %w", err)
	}
	v, err = c.record(v)
	if err := setJSON(ctx, m.store, keyVerdict, v); err != nil {
		c.Log.Warn("the other agents cannot be told the verdict", "error", err)
	} else {
		m.roster.waitGone(farewell)
	}
	return v, err
}

// conclude is the end of every other agent: the verdict is agent 0's. Where that
// is lost, what this agent knows takes its place, and is put on disk if agent 0
// did not come to it.
func (s *supervisor) conclude() (rundir.Verdict, error) {
	switch {
	case s.verdict != nil:
		return *s.verdict, nil
	case s.cfg.RunDir == nil:
		return *s.outcome, nil
	}
	v, err := s.cfg.RunDir.Verdict(s.cfg.Attempt)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return s.cfg.record(*s.outcome)
	case err != nil:
		return *s.outcome, err
	}
	return v, nil
}

// record writes the verdict and the ledger's line. An attempt that a newer one
// has superseded still has a verdict of its own to write.
func (c AgentConfig) record(v rundir.Verdict) (rundir.Verdict, error) {
	if c.RunDir == nil {
		return v, nil
	}
	if last, ok, err := c.RunDir.LastMetrics(); err != nil {
		c.Log.Warn("the last step is not known", "error", err)
	} else if ok && last.Attempt == c.Attempt {
		v.Step = last.Step
	}
	err := c.RunDir.WriteVerdict(v)
	return v, errors.Join(err, c.RunDir.Append(rundir.Event{
		Time: v.Time, Event: "end", Attempt: v.Attempt, Cause: v.Cause, Node: v.Host, Step: v.Step, Detail: v.Message,
	}))
}
