package rendezvous

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"ddpbatch/internal/text"
)

// gather waits until every agent has come, or until enough have come and the last call is over.
func (r *Rendezvous) gather(ctx context.Context) error {
	c := r.cfg
	var lastCall, giveUp <-chan time.Time
	var giveUpAfter time.Duration // the duration that giveUp was started with
	begun := time.Now()
	timeout := time.NewTimer(time.Until(c.joinEnd()))
	defer timeout.Stop()
	say := time.NewTicker(sayInterval)
	defer say.Stop()
	for {
		able, rejecting := r.membership.count()
		why, wait := r.whyImpossible(able, rejecting)
		enough := why == nil && able >= c.MinCount
		switch {
		case able == c.Count, enough && able+len(rejecting) >= c.Count: // no other agent is expected
			return nil
		case why == nil:
			giveUp = nil
		case wait == 0:
			return why
		case giveUp == nil || giveUpAfter != wait: // another reason may need more time
			giveUp, giveUpAfter = time.After(wait), wait
		}
		switch {
		case !enough:
			lastCall = nil
		case lastCall == nil:
			lastCall = time.After(c.LastCall + c.Checking)
		}
		select {
		case <-r.membership.changed:
		case <-say.C:
			c.Log.Warn("waiting for other agents", "came", able+len(rejecting), "missing", r.missing(), "since",
				time.Since(begun).Round(time.Second))
		case <-lastCall:
			return nil
		case <-giveUp:
			return cmp.Or(r.interruption(ctx), why)
		case <-timeout.C:
			if why != nil || able >= c.MinCount {
				return why
			}
			return r.missingError()
		case <-ctx.Done():
			return r.interruption(ctx)
		}
	}
}

// rejectedBefore is the reason why the run cannot begin, if ctx has ended because of it: an agent that rejects exits, and srun then
// ends the others, of which this one may still be waiting for Exchange. It is nil if ctx has ended for another reason.
func (r *Rendezvous) rejectedBefore(ctx context.Context) error {
	why, _ := r.whyImpossible(r.membership.count())
	if _, rejects := errors.AsType[*Rejection](why); rejects && signalOfPerson(ctx) == nil {
		return why
	}
	return nil
}

// interruption is the cause with which the caller ended ctx, or the missing agents if ctx's deadline has passed.
func (r *Rendezvous) interruption(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return r.missingError()
}

// whyImpossible returns why the run cannot begin any more, and how long to wait before that is final. It returns nil if the run can
// begin.
func (r *Rendezvous) whyImpossible(able int, rejecting []joinRequest) (why error, wait time.Duration) {
	c := r.cfg
	possible := max(able, c.Count-len(rejecting)) // more may have come than there are places
	if c.Reject != nil || possible < c.MinCount {
		if able < possible {
			wait = c.rejectWait() // for the others to come, and receive the reason
		}
		return rejectionOfAll(rejecting), wait
	}
	if lost := r.membership.firstLost(); lost != nil && c.MinCount == c.Count {
		// It may have been stopped by a signal that reaches this agent a moment later.
		return &LostError{Agent: lost.Index, Host: lost.Host, Why: lost.why}, SignalDelay
	}
	return nil, 0
}

// missingError is the error if too few agents came in time.
func (r *Rendezvous) missingError() error {
	c := r.cfg
	able, rejecting := r.membership.count()
	missing := r.missing()
	if len(rejecting) > 0 {
		missing += "; " + rejecting[0].Rejects.Message
	}
	err := fmt.Errorf("%d of %d agents came within %v; missing: %s: %w", able+len(rejecting), c.Count, c.JoinTimeout, missing, ErrTimeout)
	if c.Endpoint != "" {
		return err
	}
	return &NotMetError{err, r.named().savedTries(r.membership.missing())}
}

// missing describes the agents that have not come.
func (r *Rendezvous) missing() string {
	if r.cfg.Endpoint != "" { // they get their numbers when they come
		able, rejecting := r.membership.count()
		return fmt.Sprintf("%d more at %s", r.cfg.Count-able-len(rejecting), r.cfg.Endpoint)
	}
	return r.named().describe(r.membership.missing())
}

// named is the configuration with the names of the agents' nodes, as far as AgentsPerNode and the agents that came reveal them.
func (r *Rendezvous) named() Config {
	c := r.cfg
	if len(c.Hosts) == 0 && len(c.AgentsPerNode) > 0 {
		c.Hosts = r.membership.hosts(c.AgentsPerNode)
	}
	return c
}

// describe names agents and their nodes: "agent 1 (n2), agent 3 (n4)".
func (c Config) describe(agents []int) string {
	const most = 8
	names := make([]string, len(agents))
	for i, index := range agents {
		names[i] = fmt.Sprintf("agent %d (%s)", index, c.hostOf(index))
	}
	return text.Few(names, most)
}
