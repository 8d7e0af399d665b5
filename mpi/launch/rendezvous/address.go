package rendezvous

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"ddpbatch/mpi/launch/reach"
)

// localNetwork holds those of this machine's addresses that Network.Interface allows.
type localNetwork struct {
	choice reach.Choice
	addrs  []netip.Addr // the likeliest first; none: the interface is not restricted
}

// network returns which of this machine's addresses may be used. Agents of one machine use loopback addresses, and a single agent
// uses no other.
func (c Config) network() (localNetwork, error) {
	if c.Interface == "" || c.Count == 1 || c.onLoopback() {
		return localNetwork{}, nil
	}
	choice, err := reach.ParseInterface(c.Interface)
	if err != nil {
		return localNetwork{}, err
	}
	interfaces, err := reach.Interfaces()
	if err != nil {
		return localNetwork{}, fmt.Errorf("on %s: %w", c.Host, err)
	}
	addrs, err := choice.Addresses(interfaces)
	if err != nil {
		return localNetwork{}, fmt.Errorf("on %s: %w", c.Host, err)
	}
	return localNetwork{choice: choice, addrs: addrs}, nil
}

// onLoopback reports whether agents meet on this machine only.
func (c Config) onLoopback() bool { return c.OneMachine || isLoopback(c.MasterAddr) }

// oneNode reports whether all agents are on one node.
func (c Config) oneNode() bool {
	return c.Count == 1 || len(c.Local) > 0 && c.Local[0].Nodes == 1
}

// hosts are the addresses on which agent 0 listens for the other agents and ddpbatch's own workers: those that Interface allows, or
// otherwise all. The others find out which of them they reach.
func (n localNetwork) hosts(c Config) []string {
	switch {
	case c.Count == 1, c.Exchange != nil && c.oneNode():
		return []string{Loopback}
	case isLoopback(c.MasterAddr):
		return []string{c.MasterAddr}
	case len(n.addrs) == 0:
		return []string{""}
	}
	var list []string
	for _, addr := range n.addrs {
		list = append(list, addr.String())
	}
	return list
}

// offered are the addresses of hosts by which other nodes know them.
func (n localNetwork) offered(c Config) ([]netip.Addr, error) {
	switch {
	case c.oneNode():
		return []netip.Addr{netip.MustParseAddr(Loopback)}, nil
	case len(n.addrs) > 0:
		return n.addrs, nil
	}
	interfaces, err := reach.Interfaces()
	if err != nil {
		return nil, err
	}
	return n.choice.Addresses(interfaces)
}

// own is the address of this machine that its workers use, given the local address of the connection to agent 0. If Interface does
// not allow that address's network, own is another address, and warn says so.
func (n localNetwork) own(local netip.Addr) (addr netip.Addr, warn string) {
	if len(n.addrs) == 0 || local.IsLoopback() {
		return local, ""
	}
	first := n.addrs[0]
	for _, allowed := range n.addrs {
		if allowed == local {
			return local, ""
		}
		if first.BitLen() != local.BitLen() && allowed.BitLen() == local.BitLen() {
			first = allowed
		}
	}
	return first, fmt.Sprintf("the connection to agent 0 uses %s, which the interface asked for does not allow; the workers use %s", local,
		first)
}

// WorkerInterface is the interface that leads this node's workers to the other nodes. chosen reports whether the user chose it or
// it is the only one. name is "" if the interface is not known, or is a loopback one.
func (r *Rendezvous) WorkerInterface() (name string, chosen bool) {
	addr, err := netip.ParseAddr(r.workerAddr)
	if err != nil || addr.IsLoopback() {
		return "", false
	}
	interfaces, err := reach.Interfaces()
	if err != nil {
		return "", false
	}
	return reach.NameOf(interfaces, addr), len(r.localNetwork.addrs) > 0 || len(reach.Choice{}.Names(interfaces)) == 1
}

// sameHost reports whether two names mean one machine, as far as names show: "n1" and "n1.cluster" do.
func sameHost(a, b string) bool {
	label := func(name string) string {
		if _, err := netip.ParseAddr(name); err == nil {
			return name
		}
		first, _, _ := strings.Cut(name, ".")
		return cmp.Or(first, name)
	}
	return strings.EqualFold(label(a), label(b))
}

// lookAgain is the time between two lookups of a name that the name service does not know.
const lookAgain = time.Second

// SplitEndpoint parses the endpoint (host:port) at which agents without numbers meet.
func SplitEndpoint(endpoint string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(endpoint)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || !mayBeHost(host) || !isPort(port) {
		return "", 0, fmt.Errorf("%q is not an endpoint: write host:port, with a host's name or address and a port from 1 to 65535",
			endpoint)
	}
	return host, port, nil
}

// mayBeHost reports whether name can be a host's name or address.
func mayBeHost(name string) bool {
	const ofNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"
	if strings.Contains(name, ":") {
		_, err := netip.ParseAddr(name)
		return err == nil
	}
	return name != "" && !strings.Contains("."+name, "..") && strings.Trim(name, ofNames) == ""
}

// claimEndpoint makes the agent that c is for, which has no number, agent 0, if the endpoint is on this machine. The error is
// EADDRINUSE if another process of this machine has it. The listeners are nil if the endpoint is on another machine.
func (c Config) claimEndpoint(ctx context.Context, n localNetwork) (listeners, error) {
	here, err := c.awaitHere(ctx)
	if !here || err != nil {
		return nil, err
	}
	// Listen on all interfaces, unless a loopback address is meant: a machine may resolve its own name to one (127.0.1.1 in
	// /etc/hosts), which the others cannot reach.
	l, err := listenOn(n.hosts(c), c.Ports[0])
	if err != nil {
		return nil, fmt.Errorf("serve the endpoint %s: %w", c.Endpoint, err)
	}
	return l, nil
}

// awaitHere calls isHere once the name service knows the name. It may learn a machine that starts late only late.
func (c Config) awaitHere(ctx context.Context) (here bool, err error) {
	ctx, cancel := context.WithDeadlineCause(ctx, c.joinEnd(), ErrTimeout)
	defer cancel()
	var last atomic.Pointer[reach.Try] // the last lookup that was answered
	last.Store(&reach.Try{Addr: c.Endpoint})
	defer c.sayEvery(func(since time.Duration) {
		c.Log.Warn("the endpoint's host is not found yet", "endpoint", c.Endpoint, "since", since, "error",
			cmp.Or(last.Load().Err, "no answer"))
	})()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		here, err := c.isHere(ctx)
		var dns *net.DNSError
		if !errors.As(err, &dns) {
			return here, err
		}
		if ctx.Err() == nil { // otherwise the lookup was cut short, and the one before says more
			last.Store(&reach.Try{Addr: c.Endpoint, Err: dns.Error(), Count: last.Load().Count + 1})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			why := context.Cause(ctx)
			if errors.Is(why, ErrTimeout) {
				why = fmt.Errorf("within %v: %w", c.JoinTimeout, why)
			}
			row := reach.AgentTries{From: c.Host, Tries: []reach.Try{*last.Load()}}
			return false, &NotMetError{fmt.Errorf("%s did not find the endpoint's host %s: %w", c.who(), c.MasterAddr, why),
				[]reach.AgentTries{row}}
		}
	}
}

// isHere reports whether the endpoint's name or address belongs to this machine. The error may be a net.DNSError.
func (c Config) isHere(ctx context.Context) (bool, error) {
	addrs, err := c.Resolve(ctx, "ip", c.MasterAddr)
	switch {
	case err != nil:
		return false, fmt.Errorf("find the endpoint's host: %w", err)
	case len(addrs) == 0:
		return false, fmt.Errorf("find the endpoint's host: %s has no address", c.MasterAddr)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("list this machine's addresses: %w", err)
	}
	for _, addr := range addrs {
		addr = addr.Unmap()
		if addr.IsLoopback() && (c.onLoopback() || sameHost(c.MasterAddr, c.Host)) {
			return true, nil
		}
		for _, o := range own {
			if ipNet, ok := o.(*net.IPNet); ok && ipNet.IP.Equal(addr.AsSlice()) {
				return true, nil
			}
		}
	}
	if first := addrs[0].Unmap(); first.IsLoopback() {
		return false, misnamed(c.MasterAddr, first, c.Host)
	}
	return false, nil
}

// warnOfElsewhere warns at agent 0 if the address that the user gave does not belong to this machine: the others look for agent 0
// there, and it might wait for them in vain. That is not an error, since a forwarded address belongs to no machine.
func (c Config) warnOfElsewhere(ctx context.Context) {
	if !c.MasterGiven || c.Count == 1 {
		return
	}
	if here, err := c.isHere(ctx); !here && ctx.Err() == nil {
		c.Log.Warn("this is node 0, but --master-addr, where the other nodes look for it, does not seem to be one of its own addresses",
			"addr", c.MasterAddr, "error", err)
	}
}

func hostOnly(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return Loopback
	}
	return host
}

// isLoopback reports whether addr is a loopback address, or localhost.
func isLoopback(addr string) bool {
	ip := net.ParseIP(addr)
	return ip != nil && ip.IsLoopback() || strings.EqualFold(addr, "localhost")
}

// Loopback is the address by which this machine reaches itself.
const Loopback = "127.0.0.1"
