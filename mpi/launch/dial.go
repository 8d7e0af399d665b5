package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/pause"
	"ddpbatch/mpi/launch/reach"
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

const (
	firstLook = time.Second     // an agent that has not got through by then looks for the reason, and leaves word of what it tried
	nextLook  = 5 * time.Second // and does so again

	// refusalWait is how long an agent whose secret is refused looks for agent 0 elsewhere. Agent 0 may start late, and a file server may
	// hide the port that it leaves for a minute.
	refusalWait = 90 * time.Second
	takenWait   = 15 * time.Second // for whoever has this machine's port to prove that it is agent 0
	proofLimit  = 5 * time.Second  // for one try
)

// approach is an agent's way to agent 0, among several that may lead there.
type approach struct {
	m    *meeting
	cfg  AgentConfig
	to   string // for messages
	race *reach.Race
	left bool // a row was left for agent 0

	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error) // net.Resolver's
	giveUp context.CancelCauseFunc                                               // ends the race

	mu        sync.Mutex
	leftTo    string               // the address that leftAddr stood for last; "": none
	reached   map[string]arrival   // by address
	told      map[string]bool      // what a person was told, after the address
	refused   int                  // how often in a row, where there is one address
	refusedAt map[string]time.Time // since when an address says store.ErrOtherSecret, or that it speaks another version
	otherSide error                // what the last address of those says that speak another version; nil: none does

	takenSince time.Time // when the port of this machine was first found with somebody who is no agent; see isTaken
}

// arrival is a connection that has proved to be to agent 0, and the nonce by which that knows it. Each has one of its own: two ways
// may lead to one agent 0.
type arrival struct {
	client *store.Client
	nonce  string
}

// newApproach is the way by the ports that all agents know.
func newApproach(m *meeting) *approach {
	a := &approach{
		m: m, cfg: m.cfg, to: m.cfg.MasterAddr, lookup: m.cfg.resolve,
		reached: make(map[string]arrival), told: make(map[string]bool), refusedAt: make(map[string]time.Time),
	}
	if isLoopback(a.to) && !a.cfg.OneMachine {
		a.to += ", which is this machine itself"
	}
	var addrs []string
	for _, port := range a.cfg.Ports {
		addrs = append(addrs, joinPort(a.cfg.MasterAddr, port))
	}
	if a.cfg.RunDir != nil && a.cfg.Index >= 0 { // at an endpoint agent 0 has no other port
		addrs = append(addrs, a.leftAddr())
	}
	a.race = reach.NewRace(addrs, 0)
	return a
}

// follow makes it the way to what agent 0 offers.
func (a *approach) follow(o offer) {
	var addrs []string
	for _, addr := range o.Addrs {
		addrs = append(addrs, netip.AddrPortFrom(addr, uint16(o.Port)).String())
	}
	a.to = "the addresses that " + a.cfg.hostOf(0) + " told by Slurm's PMI-2"
	a.race = reach.NewRace(addrs, reach.HeadStart)
}

// connect returns the first connection that proves to be to agent 0.
func (a *approach) connect(ctx context.Context) (arrival, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, a.cfg.joinEnd(), ErrTimeout)
	defer cancel()
	raceCtx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		a.look(raceCtx, giveUp)
	}()
	addr, err := a.race.Run(raceCtx, a.prove)
	cause := cmp.Or(context.Cause(raceCtx), err) // the error of a race that has not been ended is its own
	giveUp(nil)
	<-looking
	for other, arrived := range a.reached {
		if other != addr {
			arrived.client.Close() // it returns no error
		}
	}
	if err != nil {
		return arrival{}, a.failed(cause)
	}
	if a.left {
		a.cfg.takeRow()
	}
	return a.reached[addr], nil
}

// failed says why agent 0 was not reached, and by what ways it was tried to.
func (a *approach) failed(why error) error {
	if errors.Is(why, ErrTimeout) {
		why = fmt.Errorf("within %v: %w", a.cfg.JoinTimeout, why)
		a.mu.Lock()
		if a.otherSide != nil {
			why = fmt.Errorf("%w, and %w", why, a.otherSide)
		}
		a.mu.Unlock()
	}
	row := a.row()
	a.cfg.leaveRow(row)
	return &unmetError{fmt.Errorf("%s did not get through to agent 0 at %s: %w", a.cfg.who(), a.to, why), []reach.Row{row}}
}

// leftAddr stands in the race for the port that agent 0 may leave in the run directory.
func (a *approach) leftAddr() string { return joinPort(a.cfg.MasterAddr, 0) }

// prove tells whether agent 0 answers at an address.
func (a *approach) prove(ctx context.Context, addr string) error {
	nonce, to := newNonce(), addr
	if addr == a.leftAddr() {
		if err := pause.For(ctx, firstLook); err != nil { // as a rule they have met by then
			return err
		}
		port, err := a.cfg.portLeft()
		if err != nil {
			return err
		}
		to = joinPort(a.cfg.MasterAddr, port)
		a.mu.Lock()
		a.leftTo = to
		a.mu.Unlock()
	}
	client, err := store.Connect(ctx, to, store.DialConfig{
		Secret: a.cfg.Secret, Binding: a.cfg.binding(), Name: agentName(nonce), Handshake: min(proofLimit, a.cfg.JoinTimeout/4),
	})
	switch {
	case err != nil && ctx.Err() != nil: // the race is over
		return err
	case err != nil:
		return a.judge(to, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reached[addr] = arrival{client, nonce}
	return nil
}

// judge is the error of a try, and tells a person of somebody at the address who is not agent 0.
func (a *approach) judge(addr string, err error) error {
	var op *net.OpError
	nobody := errors.As(err, &op) && op.Op == "dial"
	agent := errors.Is(err, auth.ErrRefused) || errors.Is(err, auth.ErrUnproved) || speaksAnother(err)
	switch {
	case nobody:
		err = bareDialError(addr, op)
	case speaksAnother(err):
		a.tellOnce(addr, "a ddpbatch of another version has agent 0's port", err)
	case store.Stranger(err):
		a.tellOnce(addr, "somebody else than agent 0 answers", err)
	case errors.Is(err, store.ErrSilent):
		a.tellOnce(addr, "somebody has agent 0's port and does not answer", err)
	default:
		a.tellOnce(addr, "somebody has agent 0's port and hangs up", err)
	}
	switch {
	case a.isTaken(!nobody && !agent):
		return reach.Final(fmt.Errorf("port %d of this machine is taken by another program: end it (ss -tanp shows who), or take another: %w", a.cfg.Ports[0], err))
	case a.isFinal(addr, err):
		return reach.Final(err)
	}
	return err
}

// isTaken notes whether somebody who does not speak as an agent does has this machine's port of the endpoint, and tells whether that has
// gone on for too long for an agent 0 that is slow.
func (a *approach) isTaken(foreign bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.cfg.portTaken || !foreign:
		a.takenSince = time.Time{}
		return false
	case a.takenSince.IsZero():
		a.takenSince = time.Now()
	}
	return time.Since(a.takenSince) >= min(takenWait, a.cfg.JoinTimeout/2)
}

// isFinal tells whether it is of no use to go on. Another job's agent may have one of several ports, and agent 0 the next; where all
// agents know a single one, it may be about to end, but agent 0 cannot be elsewhere.
func (a *approach) isFinal(addr string, err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	var other *auth.VersionError
	switch isOther := errors.As(err, &other); {
	case isOther: // of this run or of any
		a.otherSide = fmt.Errorf("at %s %w", addr, other)
		a.refused++
		return a.allRefuse(addr) && a.refused >= store.LastRefusal
	case !errors.Is(err, store.ErrOtherSecret):
		delete(a.refusedAt, addr)
	case a.allRefuse(addr) || time.Since(a.refusedAt[addr]) >= min(refusalWait, a.cfg.JoinTimeout/2):
		return true
	}
	if !errors.Is(err, auth.ErrRefused) {
		a.refused = 0
		return false
	}
	a.refused++
	return a.cfg.Exchange == nil && len(a.cfg.Ports) == 1 && a.refused >= store.LastRefusal
}

// speaksAnother tells whether the peer is a ddpbatch of another version of the protocol.
func speaksAnother(err error) bool { return errors.As(err, new(*auth.VersionError)) }

// allRefuse notes that an address refuses this side's secret, or speaks another version, and reports whether all addresses do. Whoever
// knows the run's id can refuse a secret: another user's run of the same id, say. a.mu is held.
func (a *approach) allRefuse(addr string) bool {
	if a.refusedAt[addr].IsZero() {
		a.refusedAt[addr] = time.Now()
	}
	return len(a.refusedAt) == len(a.race.Tries())
}

// tellOnce tells a person what is at an address, unless that was told before. The error may differ from try to try.
func (a *approach) tellOnce(addr, what string, err error) {
	a.mu.Lock()
	known := a.told[addr+what]
	a.told[addr+what] = true
	a.mu.Unlock()
	if !known {
		a.cfg.Log.Warn(what, "addr", addr, "error", err)
	}
}

// bareDialError leaves out of an error what the address tried says anyway, but for what its name resolves to.
func bareDialError(addr string, op *net.OpError) error {
	host, _, _ := net.SplitHostPort(addr)
	if tcp, ok := op.Addr.(*net.TCPAddr); ok && tcp.IP.String() != host {
		return fmt.Errorf("%s: %w", tcp.IP, op.Err)
	}
	return op.Err
}

// look looks for the reason as long as agent 0 is not reached, and gives up where it can never be.
func (a *approach) look(ctx context.Context, giveUp context.CancelCauseFunc) {
	begun := time.Now()
	timer := time.NewTimer(min(firstLook, a.cfg.JoinTimeout/2))
	defer timer.Stop()
	for said := begun; ; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if err := a.doubt(ctx); err != nil {
			giveUp(err)
			return
		}
		a.cfg.leaveRow(a.row())
		a.left = true
		if time.Since(said) >= sayInterval {
			said = time.Now()
			a.cfg.Log.Warn("agent 0 is not reached yet", "at", a.to, "since", said.Sub(begun).Round(time.Second))
		}
		timer.Reset(nextLook)
	}
}

// doubt says why the name by which all agents know agent 0 cannot lead to it; nil: it may.
func (a *approach) doubt(ctx context.Context) error {
	c := a.cfg
	if c.Exchange != nil || c.onLoopback() {
		return nil
	}
	addrs, err := a.lookup(ctx, "ip", c.MasterAddr)
	if err != nil || len(addrs) == 0 {
		return nil // as the tries say
	}
	own, forbidden := true, true
	for _, addr := range addrs {
		own = own && addr.Unmap().IsLoopback() // the resolver gives IPv4 addresses their IPv6 form
		forbidden = forbidden && a.m.network.choice.Forbids(addr)
	}
	switch {
	case own && !sameHost(c.hostOf(0), c.Host):
		return misnamed(c.MasterAddr, addrs[0].Unmap(), c.Host)
	case forbidden:
		return fmt.Errorf("%s resolves to %s on %s, which is not in %q (interface), where alone agent 0 listens; "+
			"give it a name in that network, or start with srun --mpi=pmi2, which needs no names", c.MasterAddr, addrs[0].Unmap(), c.Host, c.Interface)
	}
	return nil
}

// misnamed explains a loopback address in the place of another node's.
func misnamed(name string, addr netip.Addr, host string) error {
	return fmt.Errorf("%s resolves to %s on %s, which is %s itself and no other node; "+
		"correct the name there (/etc/hosts), use an address, or start with srun --mpi=pmi2, which needs no names", name, addr, host, host)
}
