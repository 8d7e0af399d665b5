package mpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/pause"
	"ddpbatch/mpi/store"
)

// initStore is the store that a rank has opened to meet the other ranks.
type initStore struct {
	store   store.Store
	listen  string // IP address for the other ranks
	close   func() error
	abandon func() error // closes without waiting for the other ranks
}

// openStore opens the store that the environment names.
func (e environment) openStore(ctx context.Context, log *slog.Logger) (*initStore, error) {
	binding := auth.Binding{Run: e.run, Attempt: e.attempt, Role: "store"}
	var s *initStore
	var err error
	if e.store == "" && e.rank == 0 {
		s, err = e.host(ctx, binding, log)
	} else {
		s, err = e.dial(ctx, binding, log)
	}
	if err != nil {
		return nil, err
	}
	s.listen = cmp.Or(e.listen, s.listen)
	if e.restart != "" {
		// The agent's store outlives its workers, and still has the keys of the workers before a restart.
		s.store = store.Prefix(s.store, "restart/"+e.restart)
	}
	return s, nil
}

// dial connects to the store of the agent or of rank 0.
func (e environment) dial(ctx context.Context, binding auth.Binding, log *slog.Logger) (*initStore, error) {
	addr := e.store
	if addr == "" {
		addr = net.JoinHostPort(e.master, e.port)
	}
	client, err := store.Dial(ctx, addr, store.DialConfig{
		Secret: e.secret, Binding: binding, Name: fmt.Sprintf("rank %d", e.rank), Log: log,
	})
	if err != nil {
		return nil, err // it says what failed
	}
	listen, err := addressOf(client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &initStore{store: client, listen: listen, close: client.Close, abandon: client.Close}, nil
}

// host serves the store on this rank.
func (e environment) host(ctx context.Context, binding auth.Binding, log *slog.Logger) (*initStore, error) {
	ip, err := localAddress(ctx, e.master)
	if err != nil {
		return nil, fmt.Errorf("MASTER_ADDR is %q: %w", e.master, err)
	}
	at := ""
	if ip.IsLoopback() {
		at = ip.String()
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(at, e.port))
	if err != nil {
		return nil, fmt.Errorf("serve the store at MASTER_PORT: %w", err)
	}
	g := storeClients{gone: make(chan struct{}, 1)}
	server := store.Serve(l, store.ServerConfig{Secret: e.secret, Binding: binding, Joined: g.joined, Left: g.left, Log: log})
	return &initStore{
		store: server, listen: ip.String(), abandon: server.Close,
		close: func() error {
			g.wait(hostLinger)
			return server.Close()
		},
	}, nil
}

// localAddress returns the address of this machine that host stands for.
func localAddress(ctx context.Context, host string) (netip.Addr, error) {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, err
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("list this machine's addresses: %w", err)
	}
	local := slices.DeleteFunc(found, func(ip netip.Addr) bool { return !ip.IsLoopback() && !owns(own, ip) })
	if len(local) == 0 {
		return netip.Addr{}, errors.New("it must name this machine, because rank 0 runs here")
	}
	return mostReachable(local), nil
}

// mostReachable prefers addresses that other machines can reach, and then IPv4.
func mostReachable(addrs []netip.Addr) netip.Addr {
	cost := func(ip netip.Addr) int {
		n := 0
		if ip.IsLoopback() {
			n += 2
		}
		if !ip.Unmap().Is4() {
			n++
		}
		return n
	}
	return slices.MinFunc(addrs, func(a, b netip.Addr) int { return cost(a) - cost(b) }).Unmap()
}

func owns(own []net.Addr, ip netip.Addr) bool {
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr() == ip.Unmap().WithZone("")
	})
}

// hostLinger is how long a rank that serves the store waits in Close for the others to leave.
const hostLinger = 10 * time.Second

// storeClients counts the clients of a store.
type storeClients struct {
	here atomic.Int32
	gone chan struct{} // receives when a client has left
}

// joined and left are callbacks for store.ServerConfig.
func (g *storeClients) joined(string, net.Addr) { g.here.Add(1) }

func (g *storeClients) left(string) {
	g.here.Add(-1)
	select {
	case g.gone <- struct{}{}:
	default: // wait counts the clients again anyway
	}
}

// wait returns when no client is left, or after limit.
func (g *storeClients) wait(limit time.Duration) {
	for until, waiting := time.Now().Add(limit), true; waiting && g.here.Load() > 0; {
		_, waiting = pause.Await(g.gone, time.Until(until))
	}
}
