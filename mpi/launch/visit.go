package launch

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/store"
)

// visit is the part of every other agent in the meeting. One that comes late waits for the next round.
func visit(ctx context.Context, c AgentConfig, n network) (*meeting, error) {
	var o offer
	if c.Exchange != nil {
		var err error
		if o, err = c.hear(ctx); err != nil {
			return nil, err
		}
		if o.Secret != "" {
			if c.Secret, err = auth.ParseSecret(o.Secret); err != nil {
				return nil, err
			}
		}
	}
	m := newMeeting(ctx, c, n)
	way := newApproach(m)
	if c.Exchange != nil {
		way.follow(o)
	}
	arrived, err := way.connect(ctx)
	if err != nil {
		m.cancel()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	client := arrived.client
	m.nonce = arrived.nonce
	m.store, m.closer = store.Prefix(client, prefix), client.Close
	m.tasks.Go(m.beat)
	m.tasks.Go(m.awaitDismissal)
	if err := m.attend(ctx); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, errors.Join(m.lostOr(err), m.close())
	}
	m.settle(client)
	m.listenForWarnings()
	return m, nil
}

// settle notes by which addresses this node and agent 0's reach each other.
func (m *meeting) settle(client *store.Client) {
	if m.cfg.Host == m.first.Host {
		m.listen, m.reached = m.first.Listen, m.first.Listen
		return
	}
	m.reached = hostOnly(client.RemoteAddr())
	local, err := netip.ParseAddr(hostOnly(client.LocalAddr()))
	if err != nil {
		return
	}
	own, warn := m.network.own(local)
	if m.listen = own.String(); warn != "" {
		m.cfg.Log.Warn(warn)
	}
}

// attend says what this agent is, and waits for its place. Agent 0 decides how
// long that may take, since it can name those that are missing; that agent 0 itself hangs is found by beat.
func (m *meeting) attend(ctx context.Context) error {
	if err := setJSON(ctx, m.store, fmt.Sprintf(keyJoin, m.nonce), m.cfg.join()); err != nil {
		return err
	}
	stop := m.cfg.sayEvery(func(since time.Duration) {
		m.cfg.Log.Warn("waiting "+m.cfg.awaits(), "since", since)
	})
	s, err := getJSON[seat](ctx, m.store, fmt.Sprintf(keySeat, m.nonce))
	stop()
	switch {
	case err != nil:
		return err
	case s.Refused != nil:
		return s.Refused
	case s.Over != nil:
		return &overError{s.Over.Verdict}
	case s.Index < 1 || s.Index >= m.cfg.Count || m.cfg.Index > 0 && s.Index != m.cfg.Index:
		return fmt.Errorf("agent 0 gives %s the number %d of %d", m.cfg.who(), s.Index, m.cfg.Count)
	}
	m.cfg.Index = s.Index
	m.first, err = m.planOf(ctx, s.Round)
	return err
}

// awaits is what an agent waits for that has reached agent 0.
func (c AgentConfig) awaits() string {
	if c.Index > 0 && c.MinCount == c.Count {
		return "for the other agents to come: the run begins with all of them"
	}
	return "for a place: for other agents to come, or, where the run has begun without this one, for its workers to be started again"
}

// planOf waits for the plan of a round.
func (m *meeting) planOf(ctx context.Context, round int) (*plan, error) {
	p, err := getJSON[plan](ctx, m.store, fmt.Sprintf(keyPlan, round))
	if err != nil {
		return nil, err
	}
	return &p, p.check(m.cfg)
}

// lostOr is err, or that agent 0 is lost where its connection ended.
func (m *meeting) lostOr(err error) error {
	var lost *store.LostError
	if errors.As(err, &lost) || m.hasGivenUp() {
		return fmt.Errorf("%w: %w", m.leaderLost(), err)
	}
	return err
}

// leaderLost says how agent 0 was lost.
func (m *meeting) leaderLost() *LostError {
	m.mu.Lock()
	defer m.mu.Unlock()
	lost := &LostError{Agent: 0, Host: m.cfg.hostOf(0), Why: connectionEnded}
	if m.first != nil {
		lost.Host = m.first.Host
	}
	if m.silent != "" {
		lost.Why = m.silent
	}
	return lost
}

// who names this agent.
func (c AgentConfig) who() string {
	if c.Index < 0 {
		return "the agent on " + c.Host
	}
	return fmt.Sprintf("agent %d on %s", c.Index, c.Host)
}
