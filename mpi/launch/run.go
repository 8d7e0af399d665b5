package launch

import (
	"context"
	"errors"

	"ddpbatch/internal/rundir"
)

// Run is the agent of one node: it meets the other agents, starts this node's
// workers, stops all of them when one fails anywhere, and returns when the
// workers of all agents are gone, with the same verdict at each of them. The
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
	m, err := meet(ctx, c)
	if err != nil {
		return notMet(c, err)
	}
	if len(c.Hosts) == 0 {
		c.Hosts = m.hosts
	}
	v, err := supervise(ctx, c, m)
	return v, errors.Join(err, m.close())
}

// notMet is the end of a run that did not begin.
func notMet(c AgentConfig, err error) (rundir.Verdict, error) {
	v := c.refusedOutcome(err)
	if c.Index != 0 {
		return v, err
	}
	v, recordErr := c.record(v)
	return v, errors.Join(err, recordErr)
}
