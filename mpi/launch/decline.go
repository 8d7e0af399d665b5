package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// declineWait is how long those are waited for that have not heard yet that the run will not begin.
const declineWait = 10 * time.Second

// decline is all that an agent does that cannot take part: it tells the others why, so that they do not wait for it. The error is
// the reason.
func (c AgentConfig) decline(ctx context.Context) error {
	if c.Count > 1 {
		say := time.AfterFunc(firstLook, func() { // else the error is soon enough
			c.Log.Warn("this agent cannot take part, and waits for the others to tell them so", "error", c.Declines)
		})
		defer say.Stop()
		c.Log.Debug("this agent has said to the others that it cannot take part", "answer", c.tellWhy(ctx))
	}
	return c.Declines
}

// tellWhy tells the others why this agent declines, at the place where they look for agent 0 or by agent 0. The error is the answer.
func (c AgentConfig) tellWhy(ctx context.Context) error {
	if c.Exchange == nil { // which ends when all have called it
		c.JoinTimeout = min(c.JoinTimeout, declineWait)
	}
	c.joinBy = c.joinEnd()
	var l net.Listener
	var err error
	switch {
	case c.Index == 0 && c.Exchange != nil:
		return c.publishOffer(ctx, offer{Run: c.RunID, Refused: c.declined()})
	case c.Index == 0:
		l, err = c.listen(network{})
	case c.Index < 0 && !c.Guest:
		l, err = c.claimEndpoint(ctx, network{})
	}
	switch {
	case l != nil:
		c.Index = 0
		_, err = host(ctx, c, network{}, l) // which ends in the reason
		return err
	case err != nil && !errors.Is(err, syscall.EADDRINUSE), c.Index == 0:
		return err
	}
	m, err := visit(ctx, c, network{}) // whose error is the echo of the reason, or that agent 0 is not there
	if err == nil {
		err = m.close()
	}
	return err
}

// declined is what the others hear.
func (c AgentConfig) declined() *refusal {
	r := *refusalOf(c.Declines)
	r.Message = fmt.Sprintf("%s cannot take part: %s", c.who(), r.Message)
	return &r
}
