package launch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/store"
)

// Keys of the agents in the run's store, below their own prefix.
const (
	prefix     = "launch/"
	keyJoin    = "join/%d" // join, by agent
	keyPlan    = "plan"    // plan, by agent 0
	keyFirst   = "first"   // rundir.Verdict, of the worker that ended badly before all others, by its agent
	keyOutcome = "outcome" // rundir.Verdict, by whoever comes first
	keyEnd     = "end/%d"  // this agent's workers are gone, by agent
	keyVerdict = "verdict" // rundir.Verdict, by agent 0, when it is on disk
)

// meeting is an agent's connection to the others: the store itself at agent 0,
// a client of it elsewhere.
type meeting struct {
	store  store.Store
	closer func() error
	plan   plan
	listen string   // where this agent's workers can be reached
	hosts  []string // the agents' nodes, from agent 0 on, as far as they told

	roster *roster // at agent 0 only
}

// meet brings all agents of the run together. An error is what all of them get,
// where agent 0 could still tell them.
func meet(ctx context.Context, c AgentConfig) (*meeting, error) {
	var nonce [8]byte
	rand.Read(nonce[:]) // never returns an error (crypto/rand)
	me := c.join(hex.EncodeToString(nonce[:]))
	if c.Index == 0 {
		return host(ctx, c, me)
	}
	return visit(ctx, c, me)
}

func (c AgentConfig) binding() auth.Binding {
	return auth.Binding{Run: c.RunID, Attempt: c.Attempt, Role: "store"}
}

// host is agent 0's part: it serves the store, waits for the others, and
// publishes the plan, or why there is none.
func host(ctx context.Context, c AgentConfig, me join) (*meeting, error) {
	l, err := c.listen()
	if err != nil {
		return nil, err
	}
	r := newRoster(c.Count)
	server := store.Serve(l, store.ServerConfig{Secret: c.Secret, Binding: c.binding(), Joined: r.joined, Left: r.left, Log: c.Log})
	m := &meeting{store: store.Prefix(server, prefix), closer: server.Close, roster: r}
	m.plan = plan{Count: c.Count, Host: c.Host, StorePort: l.Addr().(*net.TCPAddr).Port}
	if err := m.gather(ctx, c, me); err != nil {
		m.refuse(ctx, c, err)
		return nil, errors.Join(err, m.close())
	}
	c.Log.Info("all agents met", "agents", c.Count, "world", m.plan.World, "port", m.plan.StorePort)
	return m, nil
}

// listen opens the port that agents meet at.
func (c AgentConfig) listen() (net.Listener, error) {
	if c.Count == 1 {
		return net.Listen("tcp", joinPort(loopback, 0))
	}
	return listenFirst(c.bindHost(), c.Ports)
}

// bindHost is what agent 0 listens on: every interface, since which one the
// others reach is theirs to find out, or this machine only.
func (c AgentConfig) bindHost() string {
	if isLoopback(c.MasterAddr) {
		return c.MasterAddr
	}
	return ""
}

// gather waits for every agent and publishes the plan.
func (m *meeting) gather(ctx context.Context, c AgentConfig, me join) error {
	joins, err := m.joins(ctx, c, me)
	if err != nil {
		return err
	}
	if err := m.plan.lay(joins); err != nil {
		return err
	}
	for _, j := range joins {
		m.hosts = append(m.hosts, j.Host)
	}
	m.listen = m.roster.address(loopback)
	m.plan.Listen = m.listen
	if m.plan.MasterPort, err = c.masterPort(m.plan.StorePort); err != nil {
		return err
	}
	return setJSON(ctx, m.store, keyPlan, m.plan)
}

// joins waits for every agent to say what it is.
func (m *meeting) joins(ctx context.Context, c AgentConfig, me join) ([]join, error) {
	ctx, cancelTimeout := context.WithTimeoutCause(ctx, c.JoinTimeout, ErrTimeout)
	defer cancelTimeout()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case index := <-m.roster.lost:
			m.roster.lost <- index // the supervisor wants to know, too
			select {
			case <-time.After(settle): // it may have been told to stop, and this agent be told a moment later
				cancel(&LostError{Agent: index, Host: c.hostOf(index)})
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
	}()
	var keys []string
	for index := 1; index < c.Count; index++ {
		keys = append(keys, fmt.Sprintf(keyJoin, index))
	}
	if err := m.store.Wait(ctx, keys...); err != nil {
		return nil, m.whyNot(ctx, c, err)
	}
	select { // the roster hears of connections a moment later than of keys
	case <-m.roster.complete:
	case <-ctx.Done():
		return nil, m.whyNot(ctx, c, ctx.Err())
	}
	joins := []join{me}
	for _, key := range keys {
		j, err := getJSON[join](ctx, m.store, key)
		if err != nil {
			return nil, m.whyNot(ctx, c, err)
		}
		joins = append(joins, j)
	}
	return joins, nil
}

// whyNot says why a wait for the others ended.
func (m *meeting) whyNot(ctx context.Context, c AgentConfig, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, ErrTimeout):
		missing := m.roster.missing()
		return fmt.Errorf("%d of %d agents came within %v; missing: %s: %w",
			c.Count-len(missing), c.Count, c.JoinTimeout, c.describe(missing), ErrTimeout)
	case cause != nil:
		return cause
	}
	return err
}

// masterPort is what the workers get as MASTER_PORT.
func (c AgentConfig) masterPort(storePort int) (int, error) {
	if c.MasterPort != 0 {
		return c.MasterPort, nil
	}
	ports := c.Ports
	if c.Count == 1 {
		// No other agent on this machine holds the same store port.
		ports = Ports(fmt.Sprint(c.RunID, storePort), 256)
	}
	port, err := freePort(c.bindHost(), ports)
	if err != nil {
		return 0, fmt.Errorf("find a MASTER_PORT for the workers: %w", err)
	}
	return port, nil
}

// refuse tells every agent that is there why the run cannot begin, and gives
// them a moment to read it.
func (m *meeting) refuse(ctx context.Context, c AgentConfig, err error) {
	ctx = context.WithoutCancel(ctx)
	m.plan.Refused = refusalOf(err)
	if err := setJSON(ctx, m.store, keyPlan, m.plan); err != nil {
		c.Log.Warn("the other agents cannot be told", "error", err)
		return
	}
	m.roster.waitGone(farewell)
}

// visit is the part of every other agent.
func visit(ctx context.Context, c AgentConfig, me join) (*meeting, error) {
	var addrs []string
	for _, port := range c.Ports {
		addrs = append(addrs, joinPort(c.MasterAddr, port))
	}
	dialCtx, cancel := context.WithTimeoutCause(ctx, c.JoinTimeout, ErrTimeout)
	defer cancel()
	client, err := store.Dial(dialCtx, store.DialConfig{
		Addrs: addrs, Secret: c.Secret, Binding: c.binding(), Name: agentName(c.Index), Log: c.Log,
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("agent %d on %s did not get through to agent 0 at %s: %w", c.Index, c.Host, c.MasterAddr, err)
	}
	m := &meeting{store: store.Prefix(client, prefix), closer: client.Close}
	if err := m.attend(ctx, c, me); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, errors.Join(m.lostOr(c, err), m.close())
	}
	m.hosts = []string{m.plan.Host}
	m.listen = hostOnly(client.LocalAddr())
	if c.Host == m.plan.Host {
		m.listen = m.plan.Listen
	}
	return m, nil
}

// attend says what this agent is and waits for the plan. Agent 0 decides how
// long that may take, since it can name those that are missing; the bound here,
// twice as long, is for an agent 0 that hangs.
func (m *meeting) attend(ctx context.Context, c AgentConfig, me join) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*c.JoinTimeout, ErrTimeout)
	defer cancel()
	text, err := json.Marshal(me)
	if err != nil {
		return err
	}
	there, err := m.store.CompareSet(ctx, fmt.Sprintf(keyJoin, c.Index), nil, text)
	if err != nil {
		return err
	}
	if string(there) != string(text) {
		var other join
		if err := json.Unmarshal(there, &other); err != nil {
			return fmt.Errorf("read who else is agent %d: %w", c.Index, err)
		}
		return fmt.Errorf("two agents say that they are agent %d: on %s and on %s; give each a number of its own", c.Index, other.Host, c.Host)
	}
	if m.plan, err = getJSON[plan](ctx, m.store, keyPlan); err != nil {
		return err
	}
	if m.plan.Refused != nil {
		return m.plan.Refused
	}
	return m.plan.check(c)
}

// lostOr is err, or that agent 0 is lost where its connection ended.
func (m *meeting) lostOr(c AgentConfig, err error) error {
	var lost *store.LostError
	if errors.As(err, &lost) {
		return fmt.Errorf("%w: %w", &LostError{Agent: 0, Host: c.hostOf(0)}, err)
	}
	return err
}

func (m *meeting) close() error { return m.closer() }

func hostOnly(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return loopback
	}
	return host
}

func setJSON(ctx context.Context, s store.Store, key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.Set(ctx, key, text)
}

func getJSON[T any](ctx context.Context, s store.Store, key string) (v T, err error) {
	text, err := s.Get(ctx, key)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, fmt.Errorf("read what another agent said in %s: %w", key, err)
	}
	return v, nil
}
