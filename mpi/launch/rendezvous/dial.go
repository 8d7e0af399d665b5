package rendezvous

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

// dialRendezvous is the part of every other agent in the rendezvous. One that comes late waits for the next round.
func dialRendezvous(ctx context.Context, c Config, n localNetwork) (*Rendezvous, error) {
	var o offer
	if c.Exchange != nil {
		var err error
		if o, err = c.receiveOffer(ctx); err != nil {
			return nil, err
		}
		if o.Secret != "" {
			if c.Secret, err = auth.ParseSecret(o.Secret); err != nil {
				return nil, err
			}
		}
	}
	r := newRendezvous(ctx, c, n)
	dialer := newDialer(r)
	if c.Exchange != nil {
		dialer.useOffer(o)
	}
	reached, err := dialer.connect(ctx)
	if err != nil {
		r.cancel()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	client := reached.client
	r.nonce = reached.nonce
	r.store, r.closer = store.Prefix(client, prefix), client.Close
	r.tasks.Go(r.sendHeartbeats)
	r.tasks.Go(r.awaitDismissal)
	if err := r.join(ctx); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, errors.Join(r.LostOr(err), r.Close())
	}
	r.noteAddresses(client)
	return r, nil
}

// noteAddresses notes by which addresses this node and agent 0's reach each other.
func (r *Rendezvous) noteAddresses(client *store.Client) {
	if r.cfg.Host == r.First.Host {
		r.workerAddr, r.agent0Addr = r.First.Listen, r.First.Listen
		return
	}
	r.agent0Addr = hostOnly(client.RemoteAddr())
	local, err := netip.ParseAddr(hostOnly(client.LocalAddr()))
	if err != nil {
		return
	}
	own, warn := r.localNetwork.own(local)
	if r.workerAddr = own.String(); warn != "" {
		r.cfg.Log.Warn(warn)
	}
}

// join says what this agent is, and waits for its place. Agent 0 decides how
// long that may take, since it can name those that are missing; that agent 0 itself hangs is found by sendHeartbeats.
func (r *Rendezvous) join(ctx context.Context) error {
	if err := SetJSON(ctx, r.store, fmt.Sprintf(keyJoin, r.nonce), r.cfg.join()); err != nil {
		return err
	}
	stop := r.cfg.sayEvery(func(since time.Duration) {
		r.cfg.Log.Warn("waiting "+r.cfg.waitsFor(), "since", since)
	})
	s, err := GetJSON[assignment](ctx, r.store, fmt.Sprintf(keyAssignment, r.nonce))
	stop()
	switch {
	case err != nil:
		return err
	case s.Rejected != nil:
		return s.Rejected
	case s.Over != nil:
		return &OverError{s.Over.Verdict}
	case s.Index < 1 || s.Index >= r.cfg.Count || r.cfg.Index > 0 && s.Index != r.cfg.Index:
		return fmt.Errorf("agent 0 gives %s the number %d of %d", r.cfg.who(), s.Index, r.cfg.Count)
	}
	r.cfg.Index = s.Index
	r.First, err = r.AwaitLayout(ctx, s.Round)
	return err
}

// waitsFor is what an agent waits for that has reached agent 0.
func (c Config) waitsFor() string {
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

// dialer is an agent's way to agent 0, among several that may lead there.
type dialer struct {
	r          *Rendezvous
	cfg        Config
	to         string // for messages
	race       *reach.Race
	triesSaved bool // a row was left for agent 0

	lookup    func(ctx context.Context, network, host string) ([]netip.Addr, error)             // net.Resolver's
	connectTo func(ctx context.Context, addr string, c store.DialConfig) (*store.Client, error) // store.Connect, but in tests of policies

	mu          sync.Mutex
	savedPortAt string                // the address that savedPort stood for last; "": none
	proved      map[string]provedConn // by address
	warned      map[string]bool       // what a person was told, after the address
	refused     int                   // how often in a row, where there is one address
	refusedAt   map[string]time.Time  // since when an address says store.ErrOtherSecret, or that it speaks another version
	otherSide   error                 // what the last address of those says that speak another version; nil: none does

	takenSince time.Time // when the port of this machine was first found with somebody who is no agent; see isTaken
}

// provedConn is a connection that has proved to be to agent 0, and the nonce by which that knows it. Each has one of its own: two ways
// may lead to one agent 0.
type provedConn struct {
	client *store.Client
	nonce  string
}

// newDialer is the way by the ports that all agents know.
func newDialer(r *Rendezvous) *dialer {
	d := &dialer{
		r: r, cfg: r.cfg, to: r.cfg.MasterAddr, lookup: r.cfg.Resolve, connectTo: store.Connect,
		proved: make(map[string]provedConn), warned: make(map[string]bool), refusedAt: make(map[string]time.Time),
	}
	if isLoopback(d.to) && !d.cfg.OneMachine {
		d.to += ", which is this machine itself"
	}
	var addrs []string
	for _, port := range d.cfg.Ports {
		addrs = append(addrs, joinPort(d.cfg.MasterAddr, port))
	}
	if d.cfg.RunDir != nil && d.cfg.Index >= 0 { // at an endpoint agent 0 has no other port
		addrs = append(addrs, d.savedPortAddr())
	}
	d.race = reach.NewRace(addrs, 0)
	return d
}

// useOffer makes it the way to what agent 0 offers.
func (d *dialer) useOffer(o offer) {
	var addrs []string
	for _, addr := range o.Addrs {
		addrs = append(addrs, netip.AddrPortFrom(addr, uint16(o.Port)).String())
	}
	d.to = "the addresses that " + d.cfg.hostOf(0) + " told by Slurm's PMI-2"
	d.race = reach.NewRace(addrs, reach.HeadStart)
}

// connect returns the first connection that proves to be to agent 0.
func (d *dialer) connect(ctx context.Context) (provedConn, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, d.cfg.joinEnd(), ErrTimeout)
	defer cancel()
	raceCtx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		d.diagnose(raceCtx, giveUp)
	}()
	addr, err := d.race.Run(raceCtx, d.prove)
	cause := cmp.Or(context.Cause(raceCtx), err) // the error of a race that has not been ended is its own
	giveUp(nil)
	<-looking
	for other, arrived := range d.proved {
		if other != addr {
			arrived.client.Close() // it returns no error
		}
	}
	if err != nil {
		return provedConn{}, d.failed(cause)
	}
	if d.triesSaved {
		d.cfg.removeTries()
	}
	return d.proved[addr], nil
}

// failed says why agent 0 was not reached, and by what ways it was tried to.
func (d *dialer) failed(why error) error {
	if errors.Is(why, ErrTimeout) {
		why = fmt.Errorf("within %v: %w", d.cfg.JoinTimeout, why)
		d.mu.Lock()
		if d.otherSide != nil {
			why = fmt.Errorf("%w, and %w", why, d.otherSide)
		}
		d.mu.Unlock()
	}
	row := d.tries()
	d.cfg.saveTries(row)
	return &NotMetError{fmt.Errorf("%s did not get through to agent 0 at %s: %w", d.cfg.who(), d.to, why), []reach.AgentTries{row}}
}

// savedPortAddr stands in the race for the port that agent 0 may leave in the run directory.
func (d *dialer) savedPortAddr() string { return joinPort(d.cfg.MasterAddr, 0) }

// prove tells whether agent 0 answers at an address.
func (d *dialer) prove(ctx context.Context, addr string) error {
	nonce, to := newNonce(), addr
	if addr == d.savedPortAddr() {
		if err := pause.For(ctx, firstLook); err != nil { // as a rule they have met by then
			return err
		}
		port, err := d.cfg.savedPort()
		if err != nil {
			return err
		}
		to = joinPort(d.cfg.MasterAddr, port)
		d.mu.Lock()
		d.savedPortAt = to
		d.mu.Unlock()
	}
	client, err := d.connectTo(ctx, to, store.DialConfig{
		Secret: d.cfg.Secret, Binding: d.cfg.binding(), Name: agentName(nonce), Handshake: min(proofLimit, d.cfg.JoinTimeout/4),
	})
	switch {
	case err != nil && ctx.Err() != nil: // the race is over
		return err
	case err != nil:
		return d.classify(to, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.proved[addr] = provedConn{client, nonce}
	return nil
}

// classify is the error of a try, and tells a person of somebody at the address who is not agent 0.
func (d *dialer) classify(addr string, err error) error {
	var op *net.OpError
	nobody := errors.As(err, &op) && op.Op == "dial"
	agent := errors.Is(err, auth.ErrRefused) || errors.Is(err, auth.ErrUnproved) || speaksAnother(err)
	switch {
	case nobody:
		err = bareDialError(addr, op)
	case speaksAnother(err):
		d.warnOnce(addr, "a ddpbatch of another version has agent 0's port", err)
	case store.Unproved(err):
		d.warnOnce(addr, "somebody else than agent 0 answers", err)
	case errors.Is(err, store.ErrSilent):
		d.warnOnce(addr, "somebody has agent 0's port and does not answer", err)
	default:
		d.warnOnce(addr, "somebody has agent 0's port and hangs up", err)
	}
	switch {
	case d.isTaken(!nobody && !agent):
		return reach.Final(fmt.Errorf("port %d of this machine is taken by another program: end it (ss -tanp shows who), or take "+
			"another: %w", d.cfg.Ports[0], err))
	case d.isFinal(addr, err):
		return reach.Final(err)
	}
	return err
}

// isTaken notes whether somebody who does not speak as an agent does has this machine's port of the endpoint, and tells whether that has
// gone on for too long for an agent 0 that is slow.
func (d *dialer) isTaken(foreign bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !d.cfg.portTaken || !foreign:
		d.takenSince = time.Time{}
		return false
	case d.takenSince.IsZero():
		d.takenSince = time.Now()
	}
	return time.Since(d.takenSince) >= min(takenWait, d.cfg.JoinTimeout/2)
}

// isFinal tells whether it is of no use to go on. Another job's agent may have one of several ports, and agent 0 the next; where all
// agents know a single one, it may be about to end, but agent 0 cannot be elsewhere.
func (d *dialer) isFinal(addr string, err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	var other *auth.VersionError
	switch isOther := errors.As(err, &other); {
	case isOther: // of this run or of any
		d.otherSide = fmt.Errorf("at %s %w", addr, other)
		d.refused++
		return d.allRefuse(addr) && d.refused >= store.LastRefusal
	case !errors.Is(err, store.ErrOtherSecret):
		delete(d.refusedAt, addr)
	case d.allRefuse(addr) || time.Since(d.refusedAt[addr]) >= min(refusalWait, d.cfg.JoinTimeout/2):
		return true
	}
	if !errors.Is(err, auth.ErrRefused) {
		d.refused = 0
		return false
	}
	d.refused++
	return d.cfg.Exchange == nil && len(d.cfg.Ports) == 1 && d.refused >= store.LastRefusal
}

// speaksAnother tells whether the peer is a ddpbatch of another version of the protocol.
func speaksAnother(err error) bool { return errors.As(err, new(*auth.VersionError)) }

// allRefuse notes that an address refuses this side's secret, or speaks another version, and reports whether all addresses do. Whoever
// knows the run's id can refuse a secret: another user's run of the same id, say. d.mu is held.
func (d *dialer) allRefuse(addr string) bool {
	if d.refusedAt[addr].IsZero() {
		d.refusedAt[addr] = time.Now()
	}
	return len(d.refusedAt) == len(d.race.Tries())
}

// warnOnce tells a person what is at an address, unless that was told before. The error may differ from try to try.
func (d *dialer) warnOnce(addr, what string, err error) {
	d.mu.Lock()
	known := d.warned[addr+what]
	d.warned[addr+what] = true
	d.mu.Unlock()
	if !known {
		d.cfg.Log.Warn(what, "addr", addr, "error", err)
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

// diagnose looks for the reason as long as agent 0 is not reached, and gives up where it can never be.
func (d *dialer) diagnose(ctx context.Context, giveUp context.CancelCauseFunc) {
	begun := time.Now()
	timer := time.NewTimer(min(firstLook, d.cfg.JoinTimeout/2))
	defer timer.Stop()
	for said := begun; ; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if err := d.whyUnreachable(ctx); err != nil {
			giveUp(err)
			return
		}
		d.cfg.saveTries(d.tries())
		d.triesSaved = true
		if time.Since(said) >= sayInterval {
			said = time.Now()
			d.cfg.Log.Warn("agent 0 is not reached yet", "at", d.to, "since", said.Sub(begun).Round(time.Second))
		}
		timer.Reset(nextLook)
	}
}

// whyUnreachable says why the name by which all agents know agent 0 cannot lead to it; nil: it may.
func (d *dialer) whyUnreachable(ctx context.Context) error {
	c := d.cfg
	if c.Exchange != nil || c.onLoopback() {
		return nil
	}
	addrs, err := d.lookup(ctx, "ip", c.MasterAddr)
	if err != nil || len(addrs) == 0 {
		return nil // as the tries say
	}
	own, forbidden := true, true
	for _, addr := range addrs {
		own = own && addr.Unmap().IsLoopback() // the resolver gives IPv4 addresses their IPv6 form
		forbidden = forbidden && d.r.localNetwork.choice.Forbids(addr)
	}
	switch {
	case own && !sameHost(c.hostOf(0), c.Host):
		return misnamed(c.MasterAddr, addrs[0].Unmap(), c.Host)
	case forbidden:
		return fmt.Errorf("%s resolves to %s on %s, which is not in %q (interface), where alone agent 0 listens; "+
			"give it a name in that network, or start with srun --mpi=pmi2, which needs no names", c.MasterAddr,
			addrs[0].Unmap(), c.Host, c.Interface)
	}
	return nil
}

// misnamed explains a loopback address in the place of another node's.
func misnamed(name string, addr netip.Addr, host string) error {
	return fmt.Errorf("%s resolves to %s on %s, which is %s itself and no other node; "+
		"correct the name there (/etc/hosts), use an address, or start with srun --mpi=pmi2, which needs no names", name, addr, host, host)
}
