package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ddpbatch/mpi/store"
)

// LostError means that another agent went away, or fell silent, before the run ended.
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

// LostOr returns err, wrapped in the loss of agent 0 if its connection ended. It returns nil for nil.
func (r *Rendezvous) LostOr(err error) error {
	if err == nil {
		return nil
	}
	if _, lost := errors.AsType[*store.LostError](err); lost || r.hasGivenUp() {
		return fmt.Errorf("%w: %w", r.Agent0Lost(), err)
	}
	return err
}

// Agent0Lost returns how agent 0 was lost.
func (r *Rendezvous) Agent0Lost() *LostError {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := &LostError{Agent: 0, Host: r.cfg.hostOf(0), Why: connectionEnded}
	if r.First != nil {
		lost.Host = r.First.Host
	}
	if r.silentReason != "" {
		lost.Why = r.silentReason
	}
	return lost
}

// A connection to a machine that has lost its power or its cable does not end for tens of seconds (the reference: over 38 s). So
// every agent increments a counter at agent 0 once a second. Agent 0 sees the counter grow, and the answer shows the agent that
// agent 0 is alive. Each side counts only seconds in which it ran itself: a process that was stopped, or had no core for a while,
// does not count another as lost for that.
const (
	heartbeatEvery   = time.Second
	heartbeatsMissed = 10 // so many in a row, and the other side is lost

	// Standstill is how long a wait of at most heartbeatEvery takes if the others must have given up this agent meanwhile.
	Standstill = heartbeatsMissed * heartbeatEvery
)

// maxClockOffset is more than a message from one agent to the other takes, and less than the offset that munge allows between
// Slurm's credentials (munged(8), --ttl: 5 minutes).
const maxClockOffset = 2 * time.Minute

// compareClocks warns if another node's clock is far from this one's. Clocks decide when the job ends, and how long keys and the
// times of files are valid.
func (c Config) compareClocks(j joinRequest) {
	ahead := j.Clock.Sub(time.Now())
	if j.Clock.IsZero() || ahead.Abs() < maxClockOffset {
		return
	}
	way := "ahead of"
	if ahead < 0 {
		way = "behind"
	}
	c.Log.Warn(fmt.Sprintf("the clock of %s is %v %s that of %s: ask an administrator to check their time service", j.Host,
		ahead.Abs().Round(time.Second), way, c.Host))
}

var silence = fmt.Sprintf("it was silent for %v", heartbeatsMissed*heartbeatEvery)

// sendHeartbeats is the part of every agent but agent 0: it increments its counter, and gives up agent 0 if that does not answer.
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
				return // the connection has ended, which every wait on it notices
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
	r.silentReason = why
	r.mu.Unlock()
	if err := r.closer(); err != nil {
		r.cfg.Log.Warn("the connection to agent 0 did not end well", "error", err)
	}
}

func (r *Rendezvous) hasGivenUp() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.silentReason != ""
}

// awaitDismissal waits for the message that agent 0 goes on without this agent, for example because this agent was stopped for a while.
func (r *Rendezvous) awaitDismissal() {
	if why, err := r.store.Get(r.ctx, fmt.Sprintf(keyDismissal, r.nonce)); err == nil {
		r.giveUp("it has gone on without this agent: " + string(why))
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
		case err != nil: // ctx has ended, or the value is not a number: then it does not grow
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

// Dismiss goes on without an agent whose connection may still live, and sends it the reason.
func (r *Rendezvous) Dismiss(p *Participant, why string) {
	if !r.membership.drop(p, why) {
		return
	}
	host := r.membership.nodeOf(p)
	r.cfg.Log.Warn("an agent is lost", "agent", p.Index, "host", host, "why", why)
	if err := r.store.Set(r.ctx, fmt.Sprintf(keyDismissal, p.nonce), []byte(why)); err != nil && r.ctx.Err() == nil {
		r.cfg.Log.Warn("could not tell a lost agent that it was given up", "host", host, "error", err)
	}
}
