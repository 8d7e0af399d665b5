package launch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ddpbatch/mpi/store"
)

// LostError: another agent went away, or fell silent, before the run ended.
type LostError struct {
	Agent int
	Host  string
	Why   string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("agent %d on %s was lost: %s", e.Agent, e.Host, e.Why)
}

// connectionEnded is the most frequent reason for a loss.
const connectionEnded = "its connection ended"

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

// A connection to a machine that has lost its power or its cable does not end for tens of seconds (the reference:
// over 38 s). So every agent counts once a second at agent 0, which sees the number grow; the answer shows
// the agent that agent 0 lives. Each side counts in its own seconds, in which it did run: one that was stopped, or had no
// core for a while, thinks nobody lost for that.
const (
	beatEvery   = time.Second
	beatsMissed = 10 // in a row, and the other side is lost

	stoodStill = beatsMissed * beatEvery // where a wait of at most beatEvery has taken that long, the others must have given this agent up
)

var silence = fmt.Sprintf("it was silent for %v", beatsMissed*beatEvery)

// beat is every other agent's part: it counts, and gives agent 0 up when that does not answer.
func (m *meeting) beat() {
	answers := make(chan error, 1)
	count := func() {
		_, err := m.store.Add(m.ctx, fmt.Sprintf(keyBeat, m.nonce), 1)
		answers <- err
	}
	m.tasks.Go(count)
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for missed := 0; ; {
		select {
		case <-tick.C:
		case <-m.ctx.Done():
			return
		}
		select {
		case err := <-answers:
			if err != nil {
				return // the connection has ended, as everybody will notice
			}
			missed = 0
			m.tasks.Go(count)
		default:
			if missed++; missed >= beatsMissed {
				m.giveUp(silence)
				return
			}
		}
	}
}

// giveUp ends the connection to agent 0, so that every wait on it ends.
func (m *meeting) giveUp(why string) {
	m.mu.Lock()
	m.silent = why
	m.mu.Unlock()
	if err := m.closer(); err != nil {
		m.cfg.Log.Warn("the connection to agent 0 did not end well", "error", err)
	}
}

func (m *meeting) hasGivenUp() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.silent != ""
}

// awaitDismissal hears that agent 0 goes on without this agent: it was stopped for a while, say.
func (m *meeting) awaitDismissal() {
	if why, err := m.store.Get(m.ctx, fmt.Sprintf(keyOut, m.nonce)); err == nil {
		m.giveUp("it has gone on without this agent, of which it says: " + string(why))
	}
}

// listenTo is agent 0's part for one other agent, until its connection ends.
func (m *meeting) listenTo(ctx context.Context, g *guest) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	key := fmt.Sprintf(keyBeat, g.nonce)
	for last, missed := int64(0), 0; ; {
		slept := m.roster.looked(g)
		select {
		case <-tick.C:
		case <-g.left:
			return
		case <-ctx.Done():
			return
		}
		if time.Since(slept) >= stoodStill {
			at := time.Now()
			m.stood.Store(&at)
		}
		now, err := m.store.Add(ctx, key, 0)
		switch {
		case err != nil: // ctx has ended, or the number was spoiled: then it does not grow
			missed++
		case now == last:
			missed++
		default:
			last, missed = now, 0
		}
		if missed == beatsMissed {
			m.dismiss(g, silence)
		}
	}
}

// dismiss goes on without an agent whose connection may live, and tells it so, if it hears.
func (m *meeting) dismiss(g *guest, why string) {
	if !m.roster.drop(g, why) {
		return
	}
	host := m.roster.nodeOf(g)
	m.cfg.Log.Warn("an agent is lost", "agent", g.index, "host", host, "why", why)
	if err := m.store.Set(m.ctx, fmt.Sprintf(keyOut, g.nonce), []byte(why)); err != nil && m.ctx.Err() == nil {
		m.cfg.Log.Warn("a lost agent cannot be told so", "host", host, "error", err)
	}
}
