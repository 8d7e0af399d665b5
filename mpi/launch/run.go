package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/store"
)

// Run is the agent of one node: it meets the other agents, starts this node's
// workers, stops all of them when one fails anywhere, starts all of them again as often as c.Policy says, and returns
// when the workers of all agents are gone, with the same verdict at each of them: the last round's. The
// program should exit with Verdict.Exit, whether or not there is an error.
//
// When ctx ends, the run is stopped: the cause's signal (a [SignalError]; TERM
// for others) goes to the workers once, KILL after c.Grace.
//
// An error means that the run did not begin (the agents did not meet, or c is
// wrong) or that its verdict could not be written; a worker that fails is no
// error but a verdict.
func Run(ctx context.Context, c AgentConfig) (rundir.Verdict, error) {
	c, err := c.withDefaults()
	if err != nil {
		return c.refusedOutcome(err), err
	}
	if c.RunDir != nil {
		// Each agent looks for itself: all that a superseded attempt may do is end.
		if err := c.RunDir.Fence(c.Attempt); err != nil {
			return c.refusedOutcome(err), err
		}
	}
	logDir, err := c.openLogDir()
	c.Declines = cmp.Or(c.Declines, err)
	m, err := meet(ctx, &c)
	if err != nil {
		return notMet(c, err)
	}
	m.logDir, m.keeper = logDir, newKeeper(c)
	v, err := m.rounds(ctx)
	return v, errors.Join(err, m.keeper.end(), m.close())
}

// rounds runs one round after the other, from this agent's first to the run's last.
func (m *meeting) rounds(ctx context.Context) (rundir.Verdict, error) {
	for p := m.first; ; {
		v, next, err := supervise(ctx, newRound(m, p))
		if next == nil || err != nil {
			return v, err
		}
		p = next
	}
}

// notMet is the end of a run that did not begin, at least for this agent.
func notMet(c AgentConfig, err error) (rundir.Verdict, error) {
	var over *overError
	if errors.As(err, &over) {
		c.Log.Warn("the run is over, and this agent had no part in it: it came when all places were taken, or too late, and the workers were not started again",
			"end", over.last.Message)
		return over.last, nil
	}
	v := c.refusedOutcome(err)
	if !c.recordsUnmet(err) {
		return v, err
	}
	v = c.withStep(v)
	return v, errors.Join(err, c.record(v))
}

// recordsUnmet tells whether this agent is the one to write down that the run did not begin: agent 0, or one without a number that never
// reached an agent 0, if no other such agent has done so.
func (c AgentConfig) recordsUnmet(why error) bool {
	var told *refusal
	var lost *LostError
	switch {
	case c.Index >= 0:
		return c.Index == 0
	case c.RunDir == nil, errors.As(why, &told), errors.As(why, &lost): // there was an agent 0
		return false
	}
	_, err := c.RunDir.Verdict(c.Attempt)
	return errors.Is(err, os.ErrNotExist)
}

// round is one start of all workers of the run.
type round struct {
	m       *meeting
	cfg     AgentConfig // with this round's attempt, stop file and deadline
	plan    *plan
	store   store.Store // the control store, below the round's number
	cookie  string      // in the environment of every process of this agent's in this round
	private *private    // folder of files that have no other place; nil: none
	began   time.Time
}

func newRound(m *meeting, p *plan) *round {
	c := m.cfg
	// A stop file belongs to its attempt, so that the next one does not find it.
	if c.RunDir != nil && c.StopFile == c.RunDir.StopPath(c.Attempt) {
		c.StopFile = c.RunDir.StopPath(p.Attempt)
	}
	c.Attempt, c.Deadline = p.Attempt, p.Deadline
	c.Restarts += p.Round
	c.MasterAddr, c.TorchStore = m.masterAddr(p), p.TorchStore
	return &round{m: m, cfg: c, plan: p, store: store.Prefix(m.store, fmt.Sprintf(keyRound, p.Round)), cookie: proc.NewCookie(), began: time.Now()}
}
