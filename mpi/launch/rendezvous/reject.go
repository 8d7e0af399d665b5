package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// reject is all that an agent does that cannot take part: it reports the reason to the others, so that they do not wait for it. The
// error is that reason, or the signal of a person who stopped the wait.
func (c Config) reject(ctx context.Context) error {
	if c.Count > 1 {
		say := time.AfterFunc(firstLook, func() { // before that, the error says it soon enough
			c.Log.Warn("this agent cannot take part, and waits for the others to report that to them", "error", c.Reject)
		})
		defer say.Stop()
		received := c.publishRejection(ctx)
		if err := signalOfPerson(ctx); err != nil {
			return err
		}
		return withUnfit(c.Reject, received)
	}
	return c.Reject
}

// withUnfit is an agent's reason not to take part, with the nodes of all agents that have failed a check, as far as agent 0 knows
// them.
func withUnfit(reason, received error) error {
	own, ownOK := errors.AsType[*Rejection](reason)
	all, allOK := errors.AsType[*Rejection](received)
	if !ownOK || !allOK || len(own.Unfit) == 0 {
		return reason
	}
	merged := *own
	merged.Unfit = all.Unfit
	return &merged
}

// rejectWait is how long to wait for agents that do not know yet that the run will not begin, if nodes are not checked first.
const rejectWait = 10 * time.Second

func (c Config) rejectWait() time.Duration { return rejectWait + c.Checking }

// publishRejection reports why this agent rejects: by serving at the place where the others look for agent 0, or to agent 0.
// Whether or not that succeeds, this agent fails for its own reason. At agent 0 the error is that of all who reject.
func (c Config) publishRejection(ctx context.Context) error {
	if c.Exchange == nil { // Exchange ends only when all have called it
		c.JoinTimeout = min(c.JoinTimeout, c.rejectWait())
	}
	c.joinBy = c.joinEnd()
	var l listeners
	var err error
	switch {
	case c.Index == 0 && c.Exchange != nil:
		_ = c.exchangeOffer(ctx, offer{Run: c.RunID, Rejected: c.rejection()})
		return nil
	case c.Index == 0:
		l, err = c.listen(localNetwork{})
	case c.Index < 0 && !c.DialOnly:
		l, err = c.claimEndpoint(ctx, localNetwork{})
	}
	switch {
	case l != nil:
		c.Index = 0
		_, err = serveRendezvous(ctx, c, localNetwork{}, l)
		return err
	case err != nil && !errors.Is(err, syscall.EADDRINUSE), c.Index == 0:
		return nil
	}
	r, err := dialRendezvous(ctx, c, localNetwork{}) // its error is the same reason, or that agent 0 was not found
	if err == nil {
		_ = r.Close()
	}
	return nil
}

// rejection is what the others receive.
func (c Config) rejection() *Rejection {
	r := *RejectionOf(c.Reject)
	r.Message = fmt.Sprintf("%s cannot take part: %s", c.who(), r.Message)
	return &r
}
