package rendezvous

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/store"
)

// Keys of the agents in the run's control store, below the agents' own prefix. Those of a round (package supervise) are below its number.
const (
	prefix        = "launch"
	keyJoin       = "join/%s" // join, by an agent's nonce
	keyAssignment = "seat/%s" // assignment, by agent 0
	keyHeartbeat  = "beat/%s" // a number that grows as long as the agent lives
	keyDismissal  = "out/%s"  // the reason why agent 0 goes on without the agent
	keyLayout     = "plan/%d" // layout, by round, by agent 0
	keyRound      = "round/%d"
)

const (
	SignalDelay  = 200 * time.Millisecond // for a signal to reach all agents and their workers
	LastWordWait = 5 * time.Second        // for others to read the run's end
)

// Rendezvous is an agent's connection to the others, for the whole run: the control store itself at agent 0, a client of it elsewhere.
type Rendezvous struct {
	cfg    Config // with the agent's number
	nonce  string
	store  store.Store
	closer func() error
	localNetwork
	workerAddr string  // the address at which this agent's workers can be reached
	agent0Addr string  // the address by which agent 0 was reached from this node; "": not needed
	First      *Layout // of this agent's first round

	// At agent 0 only.
	fresh      bool // the run's secret was generated here
	membership *membership
	services   services
	ports      map[int]bool // ports that were a MASTER_PORT before
	claim      io.Closer    // of the MASTER_PORT that the user gave; nil: none was given
	// stoodStillAt is when this process ran again after it had not run for so long that the others gave it up; nil: never.
	stoodStillAt atomic.Pointer[time.Time]

	ctx    context.Context // of the tasks; Close ends it
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu           sync.Mutex
	silentReason string // why this agent gave up agent 0 while the connection still lived
}

// Join brings the agents of the run together. An error is the same for all of them, if agent 0 could still send it. If this agent
// turns out to be agent 0, own.Index becomes 0.
func Join(ctx context.Context, own *Config) (*Rendezvous, error) {
	c := *own
	c.id = newNonce()
	n, err := c.network()
	c.Reject = cmp.Or(c.Reject, err)
	var l listeners
	var claim io.Closer
	switch {
	case c.Reject != nil, c.DialOnly:
	case c.Index < 0 && c.Count > 1:
		c.joinBy = c.joinEnd()
		switch l, err = c.claimEndpoint(ctx, n); {
		case errors.Is(err, syscall.EADDRINUSE): // usually by agent 0
			c.portTaken = true
		case err != nil:
			return nil, err
		case l != nil:
			c.Index, own.Index = 0, 0
		}
	case c.Index <= 0:
		c.Index, own.Index = 0, 0
		if claim, c.Reject = c.claimMasterPort(); c.Reject == nil {
			l, c.Reject = c.listen(n)
		}
	}
	var r *Rendezvous
	switch {
	case c.Reject != nil:
		err = c.reject(ctx)
	case l != nil:
		r, err = serveRendezvous(ctx, c, n, l)
	default:
		r, err = dialRendezvous(ctx, c, n)
	}
	switch {
	case claim != nil && err != nil:
		err = errors.Join(err, claim.Close())
	case claim != nil:
		r.claim = claim
	}
	return r, err
}

func newRendezvous(ctx context.Context, c Config, n localNetwork) *Rendezvous {
	r := &Rendezvous{cfg: c, localNetwork: n, nonce: newNonce(), ports: make(map[int]bool)}
	// Messages between agents outlive the signal that ends the run.
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return r
}

// serveRendezvous is agent 0's part of the rendezvous: it serves the control store, waits for the others, and publishes the first
// layout, or the reason why the run cannot begin.
func serveRendezvous(ctx context.Context, c Config, n localNetwork, l listeners) (*Rendezvous, error) {
	fresh := c.Secret.IsZero() && c.Exchange != nil
	if fresh {
		c.Secret = auth.NewSecret()
	}
	r := newRendezvous(ctx, c, n)
	r.fresh = fresh
	r.membership = newMembership(c.join())
	r.membership.oneMachine = c.OneMachine
	ready := make(chan struct{})
	server := store.ServeAll(l, store.ServerConfig{
		Secret: c.Secret, Binding: c.binding(), Log: c.Log,
		Joined: func(name string, local net.Addr) {
			<-ready
			if p := r.membership.connect(name, local); p != nil {
				r.tasks.Go(func() { r.serveParticipant(p) })
			}
		},
		Left: r.membership.disconnect,
	})
	r.store, r.closer = store.Prefix(server, prefix), server.Close
	close(ready)
	r.tasks.Go(func() { c.warnOfElsewhere(r.ctx) })
	finding, stop := context.WithCancel(ctx)
	defer stop()
	deadline := r.findDeadline(finding)
	var err error
	if c.Exchange != nil {
		err = r.publishOffer(ctx, l.port())
	}
	if err == nil {
		err = r.gather(ctx)
	}
	if err != nil && ctx.Err() != nil {
		err = cmp.Or(r.rejectedBefore(ctx), err)
	}
	if err == nil {
		err = r.begin(ctx, c.Attempt, deadline())
	}
	if err != nil {
		r.closeAdmission(assignment{Rejected: RejectionOf(err)})
		stop()
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// begin lays out and publishes the first round.
func (r *Rendezvous) begin(ctx context.Context, attempt int, deadline time.Time) error {
	l, err := r.NewLayout(0, attempt, deadline)
	if err != nil {
		return err
	}
	r.First = l
	return r.Publish(ctx, l)
}

// Finish tells all agents that are connected, and those that still come, that no other round follows.
func (r *Rendezvous) Finish(v rundir.Verdict) {
	r.closeAdmission(assignment{Over: &LastWord{Verdict: v}})
}

// closeAdmission gives all agents that are connected, and those that still come, the final answer, and the former a moment to read
// it.
func (r *Rendezvous) closeAdmission(answer assignment) {
	for _, p := range r.membership.close(answer) {
		r.assign(p, answer)
	}
	r.membership.waitGone(LastWordWait)
}

// assign sends a participant its number, or that it cannot take part.
func (r *Rendezvous) assign(p *Participant, s assignment) {
	if err := SetJSON(r.ctx, r.store, fmt.Sprintf(keyAssignment, p.nonce), s); err != nil && r.ctx.Err() == nil {
		r.cfg.Log.Warn("could not send another agent its number", "host", r.membership.nodeOf(p), "error", err)
	}
}

// serveParticipant is agent 0's part for one other agent, for as long as its connection lives.
func (r *Rendezvous) serveParticipant(p *Participant) {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	r.tasks.Go(func() { r.receiveJoin(ctx, p) })
	r.watchHeartbeat(ctx, p)
	for _, key := range []string{keyJoin, keyAssignment, keyHeartbeat, keyDismissal} {
		// An error means that the run is over, and the store closed with it.
		_, _ = r.store.Delete(r.ctx, fmt.Sprintf(key, p.nonce))
	}
}

// receiveJoin receives a participant's description of itself, and answers it.
func (r *Rendezvous) receiveJoin(ctx context.Context, p *Participant) {
	j, err := GetJSON[joinRequest](ctx, r.store, fmt.Sprintf(keyJoin, p.nonce))
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.assign(p, assignment{Rejected: RejectionOf(err)})
		return
	}
	r.cfg.compareClocks(j)
	if j.Rejects != nil && r.cfg.MinCount < r.cfg.Count { // otherwise the run ends, and says why
		r.cfg.Log.Warn("another agent cannot take part", "why", j.Rejects.Message)
	}
	if answer := r.membership.join(p, j); answer != nil {
		r.assign(p, *answer)
		return
	}
	r.cfg.Log.Debug("an agent came", "host", j.Host)
}

// Index is this agent's number. It may have got it from agent 0.
func (r *Rendezvous) Index() int { return r.cfg.Index }

// Secret is the secret that the agents of the run share. Agent 0 may have generated it.
func (r *Rendezvous) Secret() auth.Secret { return r.cfg.Secret }

// WorkerAddr is the address at which this node's workers can be reached.
func (r *Rendezvous) WorkerAddr() string { return r.workerAddr }

// Agent0Addr is the address by which agent 0 was reached from this node; "": not needed.
func (r *Rendezvous) Agent0Addr() string { return r.agent0Addr }

// Store is the store that the agents of the run share.
func (r *Rendezvous) Store() store.Store { return r.store }

// Close ends this agent's part. When it returns, all its goroutines have ended.
func (r *Rendezvous) Close() error {
	r.cancel()
	err := errors.Join(r.services.close(), r.closer())
	if r.claim != nil {
		err = errors.Join(err, r.claim.Close())
	}
	r.tasks.Wait()
	return err
}

// binding is what agents prove to each other that they belong to.
func (c Config) binding() auth.Binding {
	return auth.Binding{Run: c.RunID, Attempt: c.Attempt, Role: "agents"}
}

// workerBinding is the same for ddpbatch's own workers and their store (package mpi).
func (c Config) workerBinding(attempt int) auth.Binding {
	return auth.Binding{Run: c.RunID, Attempt: attempt, Role: "store"}
}

// newNonce returns a name for one connection that no other has.
func newNonce() string {
	var nonce [8]byte
	rand.Read(nonce[:]) // never returns an error (crypto/rand)
	return hex.EncodeToString(nonce[:])
}

func isNonce(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 8
}

// SetJSON sets a key of the agents' store to v, as JSON.
func SetJSON(ctx context.Context, s store.Store, key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.Set(ctx, key, text)
}

// GetJSON waits until another agent has set a key of the agents' store, and returns its value.
func GetJSON[T any](ctx context.Context, s store.Store, key string) (v T, err error) {
	text, err := s.Get(ctx, key)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, fmt.Errorf("read another agent's value of %s: %w", key, err)
	}
	return v, nil
}

const sayInterval = 10 * time.Second // between two log lines about a wait

// sayEvery calls say every sayInterval, with the time since the first call, until the returned function is called.
func (c Config) sayEvery(say func(since time.Duration)) (stop func()) {
	begun := time.Now()
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(sayInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				say(time.Since(begun).Round(time.Second))
			case <-ended:
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-stopped
	}
}
