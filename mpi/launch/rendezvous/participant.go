package rendezvous

import (
	"slices"
	"time"
)

// Participant is another agent's connection, as agent 0 sees it. The membership's lock guards its fields. Index and Host do not
// change while it takes part in a round.
type Participant struct {
	Index int    // its number; 0: none yet
	Host  string // its node; "": not known yet

	nonce string      // its own name for the connection, which no other has
	join  joinRequest // its description of itself
	local string      // the address of agent 0's machine that it reached

	watched time.Time // when agent 0 last checked its heartbeat; zero: never
	lostAt  time.Time // zero: it is not lost
	why     string    // why it is lost

	gone  chan struct{} // closed when it is lost
	ended chan struct{} // closed when its connection has ended
}

func newParticipant(nonce, local string) *Participant {
	return &Participant{nonce: nonce, local: local, gone: make(chan struct{}), ended: make(chan struct{})}
}

// Gone returns a channel that is closed when the participant is lost.
func (p *Participant) Gone() <-chan struct{} { return p.gone }

// Why returns why the participant is lost. It may be called once Gone is closed.
func (p *Participant) Why() string { return p.why }

// isGone reports whether the participant is lost.
func (p *Participant) isGone() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// WhyLost is why an agent is lost, or "" if it is not.
func (r *Rendezvous) WhyLost(p *Participant) string {
	r.membership.mu.Lock()
	defer r.membership.mu.Unlock()
	return p.why
}

// StoodStill reports whether this agent, agent 0, stood still around the time when it lost an agent of the round. An older
// standstill, as when the whole job was suspended, has nothing to do with the loss.
func (r *Rendezvous) StoodStill(l *Layout) bool {
	r.membership.mu.Lock()
	defer r.membership.mu.Unlock()
	at := r.stoodStillAt.Load()
	return slices.ContainsFunc(l.Participants, func(p *Participant) bool {
		return !p.lostAt.IsZero() &&
			(!p.watched.IsZero() && p.lostAt.Sub(p.watched) >= Standstill || at != nil && p.lostAt.Sub(*at).Abs() <= 2*Standstill)
	})
}

// SilentHosts lists the nodes of a round, except agent 0's, whose agents were lost by silence: their connections had not ended.
func (r *Rendezvous) SilentHosts(l *Layout) (hosts []string) {
	r.membership.mu.Lock()
	defer r.membership.mu.Unlock()
	for _, p := range l.Participants {
		if p.isGone() && p.why == silence && p.Host != r.cfg.Host {
			hosts = append(hosts, p.Host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
