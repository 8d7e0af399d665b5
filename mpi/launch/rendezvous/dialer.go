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

const (
	firstLook = time.Second     // an agent that has not got through by then looks for the reason, and saves what it tried
	nextLook  = 5 * time.Second // until it does so again

	// refusalWait is how long an agent whose secret is refused looks for agent 0 elsewhere. Agent 0 may start late, and a file
	// server may hide the port that it saved for a minute.
	refusalWait = 90 * time.Second
	takenWait   = 15 * time.Second // for the process that has this machine's port to prove that it is agent 0
	proofLimit  = 5 * time.Second  // for one try
)

// dialer finds an agent's way to agent 0, among several that may lead there.
type dialer struct {
	r          *Rendezvous
	cfg        Config
	to         string // for messages
	race       *reach.Race
	triesSaved bool // a row was saved for agent 0

	lookup    func(ctx context.Context, network, host string) ([]netip.Addr, error)             // net.Resolver's
	connectTo func(ctx context.Context, addr string, c store.DialConfig) (*store.Client, error) // store.Connect, or a test's

	mu          sync.Mutex
	savedPortAt string                // the last address that savedPort resolved to; "": none
	proved      map[string]provedConn // by address
	warned      map[string]bool       // the warnings that were logged: address and text
	refused     int                   // how often in a row, if there is one address
	refusedAt   map[string]time.Time  // since when an address has returned store.ErrOtherSecret, or another version
	otherSide   error                 // the error of the last address that speaks another version; nil: none does

	takenSince time.Time // since when another program has had the port of this machine; see isTaken
}

// provedConn is a connection whose peer has proved to be agent 0, and the nonce that this agent used on it. Each connection has its
// own nonce: two ways may lead to one agent 0.
type provedConn struct {
	client *store.Client
	nonce  string
}

// newDialer returns a dialer for the ports that all agents know.
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
	if d.cfg.RunDir != nil && d.cfg.Index >= 0 { // at an endpoint, agent 0 has only the endpoint's port
		addrs = append(addrs, d.savedPortAddr())
	}
	d.race = reach.NewRace(addrs, 0)
	return d
}

// useOffer makes the dialer dial the addresses of agent 0's offer.
func (d *dialer) useOffer(o offer) {
	var addrs []string
	for _, addr := range o.Addrs {
		addrs = append(addrs, netip.AddrPortFrom(addr, uint16(o.Port)).String())
	}
	d.to = "the addresses that " + d.cfg.hostOf(0) + " published through Slurm's PMI-2"
	d.race = reach.NewRace(addrs, reach.HeadStart)
}

// connect returns the first connection whose peer proves to be agent 0.
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
	cause := cmp.Or(context.Cause(raceCtx), err) // raceCtx has no cause if the race ended by itself
	giveUp(nil)
	<-looking
	for other, arrived := range d.proved {
		if other != addr {
			arrived.client.Close() // it never returns an error
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

// failed returns the error for an agent 0 that was not reached, with the addresses that were tried.
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

// savedPortAddr stands in the race for the port that agent 0 may save in the run directory.
func (d *dialer) savedPortAddr() string { return joinPort(d.cfg.MasterAddr, 0) }

// prove returns nil if agent 0 answers at addr, and keeps the connection.
func (d *dialer) prove(ctx context.Context, addr string) error {
	nonce, to := newNonce(), addr
	if addr == d.savedPortAddr() {
		if err := pause.For(ctx, firstLook); err != nil { // usually they have met by then
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

// classify returns the error of a try, final if more tries are of no use. It warns of a process at the address that is not agent 0.
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
		d.warnOnce(addr, "the program that answers is not this run's agent 0", err)
	case errors.Is(err, store.ErrSilent):
		d.warnOnce(addr, "the program at agent 0's port does not answer", err)
	default:
		d.warnOnce(addr, "the program at agent 0's port hangs up", err)
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

// isTaken notes whether a program that does not speak as an agent does has this machine's port of the endpoint, and reports whether
// it has had it for longer than a slow agent 0 may take to answer.
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

// isFinal reports whether further tries are of no use. If there are several ports, another job's agent may have one of them and
// agent 0 the next. If all agents know a single port, the process that has it may be about to end, but agent 0 cannot be elsewhere.
func (d *dialer) isFinal(addr string, err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	var other *auth.VersionError
	switch isOther := errors.As(err, &other); {
	case isOther: // of this run, or of any
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

// speaksAnother reports whether the peer is a ddpbatch with another version of the protocol.
func speaksAnother(err error) bool { return errors.As(err, new(*auth.VersionError)) }

// allRefuse notes that an address refuses this side's secret, or speaks another version, and reports whether all addresses do. One
// address is not enough: anyone who knows the run's id can refuse a secret, for example another user's run of the same id. d.mu is
// held.
func (d *dialer) allRefuse(addr string) bool {
	if d.refusedAt[addr].IsZero() {
		d.refusedAt[addr] = time.Now()
	}
	return len(d.refusedAt) == len(d.race.Tries())
}

// warnOnce logs what is at an address, unless it has logged that before. The error may differ from try to try.
func (d *dialer) warnOnce(addr, what string, err error) {
	d.mu.Lock()
	known := d.warned[addr+what]
	d.warned[addr+what] = true
	d.mu.Unlock()
	if !known {
		d.cfg.Log.Warn(what, "addr", addr, "error", err)
	}
}

// bareDialError strips the dialed address from an error, and keeps what its name resolves to.
func bareDialError(addr string, op *net.OpError) error {
	host, _, _ := net.SplitHostPort(addr)
	if tcp, ok := op.Addr.(*net.TCPAddr); ok && tcp.IP.String() != host {
		return fmt.Errorf("%s: %w", tcp.IP, op.Err)
	}
	return op.Err
}

// diagnose looks for the reason for as long as agent 0 is not reached, and calls giveUp if it can never be.
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

// whyUnreachable returns why the name by which all agents know agent 0 cannot lead to it, or nil if it may.
func (d *dialer) whyUnreachable(ctx context.Context) error {
	c := d.cfg
	if c.Exchange != nil || c.onLoopback() {
		return nil
	}
	addrs, err := d.lookup(ctx, "ip", c.MasterAddr)
	if err != nil || len(addrs) == 0 {
		return nil // the tries report it
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
		return fmt.Errorf("%s resolves to %s on %s, which is not in %q (interface), the only network on which agent 0 listens; "+
			"give it a name in that network, or start with srun --mpi=pmi2, which does not use names", c.MasterAddr,
			addrs[0].Unmap(), c.Host, c.Interface)
	}
	return nil
}

// misnamed explains that a name resolves to a loopback address instead of another node's.
func misnamed(name string, addr netip.Addr, host string) error {
	return fmt.Errorf("%s resolves to %s on %s, which is %s itself and not another node; "+
		"correct the name there (/etc/hosts), use an address, or start with srun --mpi=pmi2, which does not use names",
		name, addr, host, host)
}
