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
	"ddpbatch/internal/text"
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
