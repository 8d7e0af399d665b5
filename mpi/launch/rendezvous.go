package launch

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/store"
)

// Keys of the agents in the run's control store, below their own prefix. Those of a round (round.go) are below its number.
const (
	prefix   = "launch"
	keyJoin  = "join/%s" // join, by an agent's nonce
	keySeat  = "seat/%s" // seat, by agent 0
	keyBeat  = "beat/%s" // a number that grows as long as the agent lives
	keyOut   = "out/%s"  // why agent 0 goes on without the agent
	keyPlan  = "plan/%d" // plan, by round, by agent 0
	keyWarn  = "warn"    // warning, by whoever comes first
	keyRound = "round/%d"
)

// meeting is an agent's connection to the others, for the whole run: the control store itself at agent 0, a client
// of it elsewhere.
type meeting struct {
	cfg    AgentConfig // with the agent's number
	nonce  string
	store  store.Store
	closer func() error
	network
	listen  string         // where this agent's workers can be reached
	reached string         // the address by which agent 0 was reached, from this node; "": nobody had to
	logDir  *output.LogDir // nil: --log-dir is not given
	keeper  *keeper
	first   *plan // of the first round that this agent has a part in

	// At agent 0 only.
	fresh    bool // the run's secret was made here
	roster   *roster
	services services
	ports    map[int]bool              // that were a MASTER_PORT
	claim    io.Closer                 // of the MASTER_PORT that was given; nil: none was
	stood    atomic.Pointer[time.Time] // when this process ran again, which had not run for so long that the others gave it up; nil: never

	moved atomic.Pointer[time.Time] // when the job ends; zero: never; nil: as the configuration says
	led   atomic.Int64              // a time.Duration, at agent 0: how long before the job's end it warns; 0: no end is known

	ctx    context.Context // of the tasks; ends with close
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	warned  chan struct{} // closed when the run was warned
	warning warning       // read after warned

	mu     sync.Mutex
	silent string // why this agent has given agent 0 up, though the connection lived
}

// meet brings the agents of the run together. An error is what all of them get, where agent 0 could still tell
// them. own gets the number 0 where this agent turns out to be agent 0.
func meet(ctx context.Context, own *AgentConfig) (*meeting, error) {
	c := *own
	c.id = newNonce()
	n, err := c.network()
	c.Declines = cmp.Or(c.Declines, err)
	var l net.Listener
	var claim io.Closer
	switch {
	case c.Declines != nil, c.Guest:
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
		if claim, c.Declines = c.claimMasterPort(); c.Declines == nil {
			l, c.Declines = c.listen(n)
		}
	}
	var m *meeting
	switch {
	case c.Declines != nil:
		err = c.decline(ctx)
	case l != nil:
		m, err = host(ctx, c, n, l)
	default:
		m, err = visit(ctx, c, n)
	}
	switch {
	case claim != nil && err != nil:
		err = errors.Join(err, claim.Close())
	case claim != nil:
		m.claim = claim
	}
	return m, err
}

func newMeeting(ctx context.Context, c AgentConfig, n network) *meeting {
	m := &meeting{cfg: c, network: n, nonce: newNonce(), keeper: &keeper{}, warned: make(chan struct{}), ports: make(map[int]bool)}
	// What agents say to each other outlives the signal that ends the run.
	m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return m
}

// host is agent 0's part of the meeting: it serves the control store, waits for the others, and publishes the first plan,
// or why there is none.
func host(ctx context.Context, c AgentConfig, n network, l net.Listener) (*meeting, error) {
	fresh := c.Secret.IsZero() && c.Exchange != nil
	if fresh {
		var err error
		if c.Secret, err = auth.NewSecret(); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	m := newMeeting(ctx, c, n)
	m.fresh = fresh
	m.roster = newRoster(c.join())
	m.roster.oneMachine = c.OneMachine
	ready := make(chan struct{})
	server := store.Serve(l, store.ServerConfig{
		Secret: c.Secret, Binding: c.binding(), Log: c.Log,
		Joined: func(name string, local net.Addr) {
			<-ready
			if g := m.roster.joined(name, local); g != nil {
				m.tasks.Go(func() { m.tend(g) })
			}
		},
		Left: m.roster.left,
	})
	m.store, m.closer = store.Prefix(server, prefix), server.Close
	close(ready)
	m.tasks.Go(func() { c.warnOfElsewhere(m.ctx) })
	finding, stop := context.WithCancel(ctx)
	defer stop()
	deadline := m.findDeadline(finding)
	err := m.assemble(ctx, portOf(l))
	if err == nil {
		m.cfg.Deadline = deadline()
		err = m.begin(ctx, c.Attempt)
	}
	if err != nil {
		m.refuse(err)
		stop()
		return nil, errors.Join(err, m.close())
	}
	m.tasks.Go(m.warnInTime)
	m.listenForWarnings()
	c.Log.Info("all agents met", "agents", len(m.first.Members), "world", m.first.World, "port", portOf(l))
	return m, nil
}

// assemble has those come that the run begins with; or they hear why agent 0 cannot take part.
func (m *meeting) assemble(ctx context.Context, port int) error {
	if m.cfg.Exchange != nil {
		if err := m.tell(ctx, port); err != nil {
			return err
		}
	}
	return m.gather(ctx)
}

// gather waits until every agent has come, or enough of them and the last call is over.
func (m *meeting) gather(ctx context.Context) error {
	c := m.cfg
	var lastCall, settled <-chan time.Time
	var settles time.Duration // what settled was begun with
	begun := time.Now()
	timeout := time.NewTimer(time.Until(c.joinEnd()))
	defer timeout.Stop()
	say := time.NewTicker(sayInterval)
	defer say.Stop()
	for {
		able, declined := m.roster.attendance()
		why, wait := m.spoiled(able, declined)
		enough := why == nil && able >= c.MinCount
		switch {
		case able == c.Count, enough && able+len(declined) >= c.Count: // nobody else is to come
			return nil
		case why == nil:
			settled = nil
		case wait == 0:
			return why
		case settled == nil || settles != wait: // another reason may need more time
			settled, settles = time.After(wait), wait
		}
		switch {
		case !enough:
			lastCall = nil
		case lastCall == nil:
			lastCall = time.After(c.LastCall)
		}
		select {
		case <-m.roster.changed:
		case <-say.C:
			c.Log.Warn("waiting for other agents", "came", able+len(declined), "missing", m.missing(), "since", time.Since(begun).Round(time.Second))
		case <-lastCall:
			return nil
		case <-settled:
			return cmp.Or(m.toldToStop(ctx), why)
		case <-timeout.C:
			if why != nil || able >= c.MinCount {
				return why
			}
			return m.whoIsMissing()
		case <-ctx.Done():
			return m.toldToStop(ctx)
		}
	}
}

// toldToStop is why the caller does not want to wait for other agents any more; nil: it does.
func (m *meeting) toldToStop(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return m.whoIsMissing()
}

// spoiled says why the run cannot begin any more, and how long to wait before that is the last word; nil: it can.
func (m *meeting) spoiled(able int, declined []join) (why error, wait time.Duration) {
	c := m.cfg
	possible := max(able, c.Count-len(declined)) // more may have come than there are places
	if c.Declines != nil || possible < c.MinCount {
		if able < possible {
			wait = declineWait // for the others to come, and hear it
		}
		return declined[0].Declines, wait
	}
	if lost := m.roster.firstLost(); lost != nil && c.MinCount == c.Count {
		// It may have been told to stop, and this agent be told a moment later.
		return &LostError{Agent: lost.index, Host: lost.join.Host, Why: lost.why}, settle
	}
	return nil, 0
}

// whoIsMissing is the error where too few agents came in time.
func (m *meeting) whoIsMissing() error {
	c := m.cfg
	able, declined := m.roster.attendance()
	missing := m.missing()
	if len(declined) > 0 {
		missing += "; " + declined[0].Declines.Message
	}
	err := fmt.Errorf("%d of %d agents came within %v; missing: %s: %w", able+len(declined), c.Count, c.JoinTimeout, missing, ErrTimeout)
	if c.Endpoint != "" {
		return err
	}
	return &unmetError{err, m.named().rowsOf(m.roster.missing())}
}

// missing says who has not come.
func (m *meeting) missing() string {
	if m.cfg.Endpoint != "" { // they get their numbers when they come
		able, declined := m.roster.attendance()
		return fmt.Sprintf("%d more at %s", m.cfg.Count-able-len(declined), m.cfg.Endpoint)
	}
	return m.named().describe(m.roster.missing())
}

// named is the configuration with the agents' nodes, as far as the layout tells them.
func (m *meeting) named() AgentConfig {
	c := m.cfg
	if len(c.Hosts) == 0 && len(c.Layout) > 0 {
		c.Hosts = m.roster.hosts(c.Layout)
	}
	return c
}

// describe names agents and their nodes: "agent 1 (n2), agent 3 (n4)".
func (c AgentConfig) describe(agents []int) string {
	const most = 8
	var words []string
	for _, index := range agents[:min(most, len(agents))] {
		words = append(words, fmt.Sprintf("agent %d (%s)", index, c.hostOf(index)))
	}
	if more := len(agents) - most; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}

// begin plans and publishes the first round.
func (m *meeting) begin(ctx context.Context, attempt int) error {
	p, err := m.layRound(0, attempt)
	if err != nil {
		return err
	}
	m.first = p
	return m.publish(ctx, p)
}

// refuse tells every agent that is there why the run cannot begin, and gives
// them a moment to read it.
func (m *meeting) refuse(err error) {
	m.dismissAll(seat{Refused: refusalOf(err)})
}

// dismissAll gives everybody who is here, and who still comes, the last word.
func (m *meeting) dismissAll(told seat) {
	for _, g := range m.roster.close(told) {
		m.answer(g, told)
	}
	m.roster.waitGone(farewell)
}

// answer tells a guest its number, or that there is no place for it.
func (m *meeting) answer(g *guest, s seat) {
	if err := setJSON(m.ctx, m.store, fmt.Sprintf(keySeat, g.nonce), s); err != nil && m.ctx.Err() == nil {
		m.cfg.Log.Warn("another agent cannot be told its place", "host", m.roster.nodeOf(g), "error", err)
	}
}

// tend is agent 0's part for one other agent, as long as its connection lives.
func (m *meeting) tend(g *guest) {
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	m.tasks.Go(func() { m.greet(ctx, g) })
	m.listenTo(ctx, g)
	for _, key := range []string{keyJoin, keySeat, keyBeat, keyOut} {
		// An error means that the run is over, and the store with it.
		_, _ = m.store.Delete(m.ctx, fmt.Sprintf(key, g.nonce))
	}
}

// greet hears what a guest is.
func (m *meeting) greet(ctx context.Context, g *guest) {
	j, err := getJSON[join](ctx, m.store, fmt.Sprintf(keyJoin, g.nonce))
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		m.answer(g, seat{Refused: refusalOf(err)})
		return
	}
	if j.Declines != nil && m.cfg.MinCount < m.cfg.Count { // else it is why the run ends
		m.cfg.Log.Warn("another agent declines", "why", j.Declines.Message)
	}
	if told := m.roster.arrive(g, j); told != nil {
		m.answer(g, *told)
		return
	}
	m.cfg.Log.Debug("an agent came", "host", j.Host)
}

// close ends this agent's part; it returns when nothing of it runs any more.
func (m *meeting) close() error {
	m.cancel()
	err := errors.Join(m.services.close(), m.closer())
	if m.claim != nil {
		err = errors.Join(err, m.claim.Close())
	}
	m.tasks.Wait()
	return err
}

// binding is what agents prove to each other.
func (c AgentConfig) binding() auth.Binding {
	return auth.Binding{Run: c.RunID, Attempt: c.Attempt, Role: "agents"}
}

// workerBinding is what ddpbatch's own workers prove to their store (package mpi).
func (c AgentConfig) workerBinding(attempt int) auth.Binding {
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
