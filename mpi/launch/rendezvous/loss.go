package rendezvous

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

// LostOr is err, or that agent 0 is lost where its connection ended; nil for nil.
func (r *Rendezvous) LostOr(err error) error {
	if err == nil {
		return nil
	}
	if _, lost := errors.AsType[*store.LostError](err); lost || r.hasGivenUp() {
		return fmt.Errorf("%w: %w", r.Agent0Lost(), err)
	}
	return err
}

// Agent0Lost says how agent 0 was lost.
func (r *Rendezvous) Agent0Lost() *LostError {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := &LostError{Agent: 0, Host: r.cfg.hostOf(0), Why: connectionEnded}
	if r.First != nil {
		lost.Host = r.First.Host
	}
	if r.silentWhy != "" {
		lost.Why = r.silentWhy
	}
	return lost
}

// A connection to a machine that has lost its power or its cable does not end for tens of seconds (the reference:
// over 38 s). So every agent counts once a second at agent 0, which sees the number grow; the answer shows
// the agent that agent 0 lives. Each side counts in its own seconds, in which it did run: one that was stopped, or had no
// core for a while, thinks nobody lost for that.
const (
	heartbeatEvery   = time.Second
	heartbeatsMissed = 10 // in a row, and the other side is lost

	// where a wait of at most heartbeatEvery has taken that long, the others must have given this agent up
	Standstill = heartbeatsMissed * heartbeatEvery
)

// maxClockOffset is more than the way from one agent to the other takes, and less than what munge lets Slurm's credentials differ by
// (munged(8), --ttl: 5 minutes).
const maxClockOffset = 2 * time.Minute

// compareClocks says where another node's clock is far from this one's: when the job ends is a time of the clock, and so is what keys and
// files' times are valid for.
func (c Config) compareClocks(j joinRequest) {
	ahead := j.Clock.Sub(time.Now())
	if j.Clock.IsZero() || ahead.Abs() < maxClockOffset {
		return
	}
	way := "ahead of"
	if ahead < 0 {
		way = "behind"
	}
	c.Log.Warn(fmt.Sprintf("the clock of %s is %v %s that of %s: an administrator should look after their time service", j.Host,
		ahead.Abs().Round(time.Second), way, c.Host))
}

var silence = fmt.Sprintf("it was silent for %v", heartbeatsMissed*heartbeatEvery)

// sendHeartbeats is every other agent's part: it counts, and gives agent 0 up when that does not answer.
func (r *Rendezvous) sendHeartbeats() {
	answers := make(chan error, 1)
	count := func() {
		_, err := r.store.Add(r.ctx, fmt.Sprintf(keyHeartbeat, r.nonce), 1)
		answers <- err
	}
	r.tasks.Go(count)
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for missed := 0; ; {
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			return
		}
		select {
		case err := <-answers:
			if err != nil {
				return // the connection has ended, as everybody will notice
			}
			missed = 0
			r.tasks.Go(count)
		default:
			if missed++; missed >= heartbeatsMissed {
				r.giveUp(silence)
				return
			}
		}
	}
}

// giveUp ends the connection to agent 0, so that every wait on it ends.
func (r *Rendezvous) giveUp(why string) {
	r.mu.Lock()
	r.silentWhy = why
	r.mu.Unlock()
	if err := r.closer(); err != nil {
		r.cfg.Log.Warn("the connection to agent 0 did not end well", "error", err)
	}
}

func (r *Rendezvous) hasGivenUp() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.silentWhy != ""
}

// awaitDismissal hears that agent 0 goes on without this agent: it was stopped for a while, say.
func (r *Rendezvous) awaitDismissal() {
	if why, err := r.store.Get(r.ctx, fmt.Sprintf(keyDismissal, r.nonce)); err == nil {
		r.giveUp("it has gone on without this agent, of which it says: " + string(why))
	}
}

// watchHeartbeat is agent 0's part for one other agent, until its connection ends.
func (r *Rendezvous) watchHeartbeat(ctx context.Context, p *Participant) {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	key := fmt.Sprintf(keyHeartbeat, p.nonce)
	for last, missed := int64(0), 0; ; {
		slept := r.membership.watched(p)
		select {
		case <-tick.C:
		case <-p.ended:
			return
		case <-ctx.Done():
			return
		}
		if time.Since(slept) >= Standstill {
			at := time.Now()
			r.stoodStillAt.Store(&at)
		}
		now, err := r.store.Add(ctx, key, 0)
		switch {
		case err != nil: // ctx has ended, or the number was spoiled: then it does not grow
			missed++
		case now == last:
			missed++
		default:
			last, missed = now, 0
		}
		if missed == heartbeatsMissed {
			r.Dismiss(p, silence)
		}
	}
}

// Dismiss goes on without an agent whose connection may live, and tells it so, if it hears.
func (r *Rendezvous) Dismiss(p *Participant, why string) {
	if !r.membership.drop(p, why) {
		return
	}
	host := r.membership.nodeOf(p)
	r.cfg.Log.Warn("an agent is lost", "agent", p.Index, "host", host, "why", why)
	if err := r.store.Set(r.ctx, fmt.Sprintf(keyDismissal, p.nonce), []byte(why)); err != nil && r.ctx.Err() == nil {
		r.cfg.Log.Warn("a lost agent cannot be told so", "host", host, "error", err)
	}
}
