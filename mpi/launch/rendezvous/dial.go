package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/store"
)

// dialRendezvous is the part of every agent but agent 0 in the rendezvous. An agent that comes late waits for the next round.
func dialRendezvous(ctx context.Context, c Config, n localNetwork) (*Rendezvous, error) {
	var o offer
	if c.Exchange != nil {
		var err error
		if o, err = c.receiveOffer(ctx); err != nil {
			return nil, err
		}
		if o.Secret != "" {
			if c.Secret, err = auth.ParseSecret(o.Secret); err != nil {
				return nil, err
			}
		}
	}
	r := newRendezvous(ctx, c, n)
	dialer := newDialer(r)
	if c.Exchange != nil {
		dialer.useOffer(o)
	}
	reached, err := dialer.connect(ctx)
	if err != nil {
		r.cancel()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	client := reached.client
	r.nonce = reached.nonce
	r.store, r.closer = store.Prefix(client, prefix), client.Close
	r.tasks.Go(r.sendHeartbeats)
	r.tasks.Go(r.awaitDismissal)
	if err := r.join(ctx); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, errors.Join(r.LostOr(err), r.Close())
	}
	r.noteAddresses(client)
	return r, nil
}

// noteAddresses records the addresses by which this node and agent 0's node reach each other.
func (r *Rendezvous) noteAddresses(client *store.Client) {
	if r.cfg.Host == r.First.Host {
		r.workerAddr, r.agent0Addr = r.First.Listen, r.First.Listen
		return
	}
	r.agent0Addr = hostOnly(client.RemoteAddr())
	local, err := netip.ParseAddr(hostOnly(client.LocalAddr()))
	if err != nil {
		return
	}
	own, warn := r.localNetwork.own(local)
	if r.workerAddr = own.String(); warn != "" {
		r.cfg.Log.Warn(warn)
	}
}

// join describes this agent to agent 0, and waits for its number and first round. Agent 0 decides how long that may take, since it
// can name the missing agents. If agent 0 itself hangs, sendHeartbeats notices it.
func (r *Rendezvous) join(ctx context.Context) error {
	if err := SetJSON(ctx, r.store, fmt.Sprintf(keyJoin, r.nonce), r.cfg.join()); err != nil {
		return err
	}
	stop := r.cfg.sayEvery(func(since time.Duration) {
		r.cfg.Log.Warn("waiting "+r.cfg.waitsFor(), "since", since)
	})
	s, err := GetJSON[assignment](ctx, r.store, fmt.Sprintf(keyAssignment, r.nonce))
	stop()
	switch {
	case err != nil:
		return err
	case s.Rejected != nil:
		return s.Rejected
	case s.Over != nil:
		return &OverError{s.Over.Verdict}
	case s.Index < 1 || s.Index >= r.cfg.Count || r.cfg.Index > 0 && s.Index != r.cfg.Index:
		return fmt.Errorf("agent 0 gave %s the invalid number %d of %d", r.cfg.who(), s.Index, r.cfg.Count)
	}
	r.cfg.Index = s.Index
	r.First, err = r.AwaitLayout(ctx, s.Round)
	return err
}

// waitsFor describes what an agent that has reached agent 0 waits for.
func (c Config) waitsFor() string {
	if c.Index > 0 && c.MinCount == c.Count {
		return "for the other agents to come: the run begins with all of them"
	}
	return "for other agents to come, or, if the run has begun without this one, for the next restart of its workers"
}
