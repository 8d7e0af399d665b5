package mpi

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// The store of rank 0 lives until the other ranks have closed their Comms.
func TestStoreOfRank0OutlivesTheOthers(t *testing.T) {
	port := testkit.FreePort(t, "127.0.0.1")
	reached := make(chan struct{})
	initByEnv(t, 2, map[string]string{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}, func(rank int, c *Comm) {
		switch rank {
		case 0:
			close(reached) // rank 0 goes on to Close
		case 1:
			<-reached
			// Rank 0's connections are closed or closing, but its store still listens.
			if _, err := Recv(t.Context(), c, make([]byte, 1), 0, 0); !errors.Is(err, ErrLeft) {
				t.Errorf("got %v", err)
			}
			conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
			if err != nil {
				t.Errorf("the store has gone before rank 1: %v", err)
				return
			}
			conn.Close()
		}
	})
}

func TestWaitForStoreClientsIsBounded(t *testing.T) {
	g := storeClients{gone: make(chan struct{}, 1)}
	g.joined("rank 1", nil)
	testkit.Within(t, testkit.Patience, func() { g.wait(time.Millisecond) })
	g.joined("rank 2", nil)
	g.left("rank 1")
	g.left("rank 2")
	testkit.Within(t, testkit.Patience, func() { g.wait(time.Hour) })
}

func TestLocalAddressReachesTheHost(t *testing.T) {
	for _, tt := range []struct {
		host string
		ok   func(netip.Addr) bool
	}{
		{"127.0.0.1", func(ip netip.Addr) bool { return ip.String() == "127.0.0.1" }},
		{"127.0.0.9", func(ip netip.Addr) bool { return ip.String() == "127.0.0.9" }},
		{"::ffff:127.0.0.1", func(ip netip.Addr) bool { return ip.String() == "127.0.0.1" }},
		{"localhost", netip.Addr.IsLoopback},
	} {
		if ip, err := localAddress(t.Context(), tt.host); err != nil || !tt.ok(ip) {
			t.Errorf("%s: got %v, %v", tt.host, ip, err)
		}
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for _, a := range own {
		addr := netip.MustParsePrefix(a.String()).Addr()
		ip, err := localAddress(t.Context(), addr.String())
		switch now, listErr := net.InterfaceAddrs(); {
		case err == nil && ip == addr:
			held++
		case listErr != nil || owns(now, addr): // otherwise the address has gone meanwhile, with the interface of another test's cluster
			t.Errorf("%v: got %v, %v", addr, ip, err)
		}
	}
	if held == 0 {
		t.Error("none of this machine's addresses was found")
	}
}

func TestMostReachableAddressIsNotALoopback(t *testing.T) {
	for _, tt := range []struct {
		addrs []string
		want  string
	}{
		{[]string{"127.0.1.1", "10.0.0.1"}, "10.0.0.1"}, // Debian's /etc/hosts
		{[]string{"2001:db8::1", "10.0.0.1"}, "10.0.0.1"},
		{[]string{"127.0.0.1", "2001:db8::1"}, "2001:db8::1"},
		{[]string{"::1", "127.0.0.1"}, "127.0.0.1"},
		{[]string{"::ffff:10.0.0.1"}, "10.0.0.1"},
	} {
		var addrs []netip.Addr
		for _, text := range tt.addrs {
			addrs = append(addrs, netip.MustParseAddr(text))
		}
		if got := mostReachable(addrs); got.String() != tt.want {
			t.Errorf("of %v: got %v, want %s", tt.addrs, got, tt.want)
		}
	}
}
