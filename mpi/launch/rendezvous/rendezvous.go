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

// Keys of the agents in the run's control store, below their own prefix. Those of a round (package supervise) are below its number.
const (
	prefix        = "launch"
	keyJoin       = "join/%s" // join, by an agent's nonce
	keyAssignment = "seat/%s" // assignment, by agent 0
	keyHeartbeat  = "beat/%s" // a number that grows as long as the agent lives
	keyDismissal  = "out/%s"  // why agent 0 goes on without the agent
	keyLayout     = "plan/%d" // layout, by round, by agent 0
	keyRound      = "round/%d"
)

const (
	SignalDelay  = 200 * time.Millisecond // in which a signal reaches all that it is sent to: the agents, and their workers
	LastWordWait = 5 * time.Second        // for others to read the last word
)

// Rendezvous is an agent's connection to the others, for the whole run: the control store itself at agent 0, a client
// of it elsewhere.
type Rendezvous struct {
	cfg    Config // with the agent's number
	nonce  string
	store  store.Store
	closer func() error
	localNetwork
	workerAddr string  // where this agent's workers can be reached
	agent0Addr string  // the address by which agent 0 was reached, from this node; "": nobody had to
	First      *Layout // of the first round that this agent has a part in

	// At agent 0 only.
	fresh      bool // the run's secret was made here
	membership *membership
	services   services
	ports      map[int]bool // that were a MASTER_PORT
	claim      io.Closer    // of the MASTER_PORT that was given; nil: none was
	// when this process ran again, which had not run for so long that the others gave it up; nil: never
	stoodStillAt atomic.Pointer[time.Time]

	ctx    context.Context // of the tasks; ends with close
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu        sync.Mutex
	silentWhy string // why this agent has given agent 0 up, though the connection lived
}

// Join brings the agents of the run together. An error is what all of them get, where agent 0 could still tell
// them. own gets the number 0 where this agent turns out to be agent 0.
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
		case errors.Is(err, syscall.EADDRINUSE): // by agent 0, as a rule
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
	// What agents say to each other outlives the signal that ends the run.
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return r
}

// serveRendezvous is agent 0's part of the rendezvous: it serves the control store, waits for the others, and publishes the first layout,
// or why there is none.
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

// gather waits until every agent has come, or enough of them and the last call is over.
func (r *Rendezvous) gather(ctx context.Context) error {
	c := r.cfg
	var lastCall, giveUp <-chan time.Time
	var giveUpAfter time.Duration // what giveUp was begun with
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
		case able == c.Count, enough && able+len(rejecting) >= c.Count: // nobody else is to come
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

// rejectedBefore is why the run cannot begin, if ctx has ended because of that: an agent that rejects exits, and srun then ends the others.
// This agent may still be waiting for Exchange. nil: that is not why.
func (r *Rendezvous) rejectedBefore(ctx context.Context) error {
	why, _ := r.whyImpossible(r.membership.count())
	if _, rejects := errors.AsType[*Rejection](why); rejects && signalOfPerson(ctx) == nil {
		return why
	}
	return nil
}

// interruption is why the caller does not want to wait for other agents any more; nil: it does.
func (r *Rendezvous) interruption(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return r.missingError()
}

// whyImpossible says why the run cannot begin any more, and how long to wait before that is the last word; nil: it can.
func (r *Rendezvous) whyImpossible(able int, rejecting []joinRequest) (why error, wait time.Duration) {
	c := r.cfg
	possible := max(able, c.Count-len(rejecting)) // more may have come than there are places
	if c.Reject != nil || possible < c.MinCount {
		if able < possible {
			wait = c.rejectWait() // for the others to come, and hear it
		}
		return rejectionOfAll(rejecting), wait
	}
	if lost := r.membership.firstLost(); lost != nil && c.MinCount == c.Count {
		// It may have been told to stop, and this agent be told a moment later.
		return &LostError{Agent: lost.Index, Host: lost.Host, Why: lost.why}, SignalDelay
	}
	return nil, 0
}

// missingError is the error where too few agents came in time.
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

// missing says who has not come.
func (r *Rendezvous) missing() string {
	if r.cfg.Endpoint != "" { // they get their numbers when they come
		able, rejecting := r.membership.count()
		return fmt.Sprintf("%d more at %s", r.cfg.Count-able-len(rejecting), r.cfg.Endpoint)
	}
	return r.named().describe(r.membership.missing())
}

// named is the configuration with the agents' nodes, as far as the layout tells them.
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

// Finish tells everybody who is here, and who still comes, that there is no other round.
func (r *Rendezvous) Finish(v rundir.Verdict) {
	r.closeAdmission(assignment{Over: &LastWord{Verdict: v}})
}

// closeAdmission gives everybody who is here, and who still comes, the last word, and a moment to read it.
func (r *Rendezvous) closeAdmission(answer assignment) {
	for _, p := range r.membership.close(answer) {
		r.assign(p, answer)
	}
	r.membership.waitGone(LastWordWait)
}

// assign tells a participant its number, or that there is no place for it.
func (r *Rendezvous) assign(p *Participant, s assignment) {
	if err := SetJSON(r.ctx, r.store, fmt.Sprintf(keyAssignment, p.nonce), s); err != nil && r.ctx.Err() == nil {
		r.cfg.Log.Warn("another agent cannot be told its place", "host", r.membership.nodeOf(p), "error", err)
	}
}

// serveParticipant is agent 0's part for one other agent, as long as its connection lives.
func (r *Rendezvous) serveParticipant(p *Participant) {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	r.tasks.Go(func() { r.receiveJoin(ctx, p) })
	r.watchHeartbeat(ctx, p)
	for _, key := range []string{keyJoin, keyAssignment, keyHeartbeat, keyDismissal} {
		// An error means that the run is over, and the store with it.
		_, _ = r.store.Delete(r.ctx, fmt.Sprintf(key, p.nonce))
	}
}

// receiveJoin hears what a participant is.
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
	if j.Rejects != nil && r.cfg.MinCount < r.cfg.Count { // else it is why the run ends
		r.cfg.Log.Warn("another agent cannot take part", "why", j.Rejects.Message)
	}
	if answer := r.membership.join(p, j); answer != nil {
		r.assign(p, *answer)
		return
	}
	r.cfg.Log.Debug("an agent came", "host", j.Host)
}

// Index is this agent's number, which agent 0 may have given it.
func (r *Rendezvous) Index() int { return r.cfg.Index }

// Secret is what the agents of the run share. Agent 0 may have made it.
func (r *Rendezvous) Secret() auth.Secret { return r.cfg.Secret }

// WorkerAddr is where this node's workers can be reached.
func (r *Rendezvous) WorkerAddr() string { return r.workerAddr }

// Agent0Addr is the address by which agent 0 was reached from here; "": nobody had to.
func (r *Rendezvous) Agent0Addr() string { return r.agent0Addr }

// Store is the store that the agents of the run have in common.
func (r *Rendezvous) Store() store.Store { return r.store }

// Close ends this agent's part; it returns when nothing of it runs any more.
func (r *Rendezvous) Close() error {
	r.cancel()
	err := errors.Join(r.services.close(), r.closer())
	if r.claim != nil {
		err = errors.Join(err, r.claim.Close())
	}
	r.tasks.Wait()
	return err
}

// binding is what agents prove to each other.
func (c Config) binding() auth.Binding {
	return auth.Binding{Run: c.RunID, Attempt: c.Attempt, Role: "agents"}
}

// workerBinding is what ddpbatch's own workers prove to their store (package mpi).
func (c Config) workerBinding(attempt int) auth.Binding {
	return auth.Binding{Run: c.RunID, Attempt: attempt, Role: "store"}
}

// newNonce names one connection, and keeps it apart from all others.
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

// GetJSON waits until another agent has set a key of the agents' store, and returns what it holds.
func GetJSON[T any](ctx context.Context, s store.Store, key string) (v T, err error) {
	text, err := s.Get(ctx, key)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, fmt.Errorf("read what another agent said in %s: %w", key, err)
	}
	return v, nil
}

const sayInterval = 10 * time.Second // between two lines that say who is waited for

// sayEvery calls say now and then, with the time since, until the returned function is called.
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
