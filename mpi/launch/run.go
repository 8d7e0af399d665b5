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
		return c.notBegunOutcome(err), err
	}
	if c.RunDir != nil {
		// Each agent looks for itself: all that a superseded attempt may do is end.
		if err := c.RunDir.Fence(c.Attempt); err != nil {
			return c.notBegunOutcome(err), err
		}
	}
	logDir, err := c.openLogDir()
	c.Declines = cmp.Or(c.Declines, err)
	r, err := joinRendezvous(ctx, &c)
	if err != nil {
		return notBegun(c, err)
	}
	r.logDir, r.reaper = logDir, newReaper(c)
	v, err := r.rounds(ctx)
	return v, errors.Join(err, r.reaper.end(), r.close())
}

// rounds runs one round after the other, from this agent's first to the run's last.
func (r *rendezvous) rounds(ctx context.Context) (rundir.Verdict, error) {
	for l := r.first; ; {
		v, next, err := supervise(ctx, newRound(r, l))
		if next == nil || err != nil {
			return v, err
		}
		l = next
	}
}

// notBegun is the end of a run that did not begin, at least for this agent.
func notBegun(c AgentConfig, err error) (rundir.Verdict, error) {
	var over *overError
	if errors.As(err, &over) {
		c.Log.Warn("the run is over, and this agent had no part in it: it came when all places were taken, or too late, and the workers were not started again",
			"end", over.last.Message)
		return over.last, nil
	}
	v := c.notBegunOutcome(err)
	if !c.recordsFailure(err) {
		return v, err
	}
	v = c.withStep(v)
	return v, errors.Join(err, c.record(v))
}

// recordsFailure tells whether this agent is the one to write down that the run did not begin: agent 0, or one without a number that never
// reached an agent 0, if no other such agent has done so.
func (c AgentConfig) recordsFailure(why error) bool {
	var received *rejection
	var lost *LostError
	switch {
	case c.Index >= 0:
		return c.Index == 0
	case c.RunDir == nil, errors.As(why, &received), errors.As(why, &lost): // there was an agent 0
		return false
	}
	_, err := c.RunDir.Verdict(c.Attempt)
	return errors.Is(err, os.ErrNotExist)
}

// round is one start of all workers of the run.
type round struct {
	rdzv    *rendezvous
	cfg     AgentConfig // with this round's attempt, stop file and deadline
	layout  *layout
	store   store.Store    // the control store, below the round's number
	cookie  string         // in the environment of every process of this agent's in this round
	private *privateFolder // folder of files that have no other place; nil: none
	began   time.Time
}

func newRound(r *rendezvous, l *layout) *round {
	c := r.cfg
	// A stop file belongs to its attempt, so that the next one does not find it.
	if c.RunDir != nil && c.StopFile == c.RunDir.StopPath(c.Attempt) {
		c.StopFile = c.RunDir.StopPath(l.Attempt)
	}
	c.Attempt, c.Deadline = l.Attempt, l.Deadline
	c.Restarts += l.Round
	c.MasterAddr, c.TorchStore = r.masterAddr(l), l.TorchStore
	return &round{rdzv: r, cfg: c, layout: l, store: store.Prefix(r.store, fmt.Sprintf(keyRound, l.Round)), cookie: proc.NewCookie(), began: time.Now()}
}
