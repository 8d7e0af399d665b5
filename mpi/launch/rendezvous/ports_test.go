package rendezvous

import (
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"
)

func TestPorts(t *testing.T) {
	for _, seed := range []string{"", "cluster/1/0/0", "cluster/1/0/1", "x"} {
		list := Ports(seed, 1<<20)
		if len(list) != 4536+12768 {
			t.Fatalf("%q: %d ports", seed, len(list))
		}
		for i, port := range list {
			if high := port >= 61000 && port <= 65535; high != (i < 4536) || !high && (port < 20000 || port > 32767) {
				t.Fatalf("%q: port %d is %d", seed, i, port)
			}
		}
		if sorted := slices.Compact(slices.Sorted(slices.Values(list))); len(sorted) != len(list) {
			t.Errorf("%q: %d ports come twice", seed, len(list)-len(sorted))
		}
		if !slices.Equal(Ports(seed, 16), list[:16]) {
			t.Errorf("%q: a shorter list begins otherwise", seed)
		}
	}
	if slices.Equal(Ports("cluster/1/0/0", 8), Ports("cluster/1/0/1", 8)) {
		t.Error("a restart tries the same ports")
	}
	if got := Ports("x", 0); len(got) != 0 {
		t.Errorf("no ports are %v", got)
	}
	if got := Ports("x", -1); len(got) != 0 {
		t.Errorf("no ports are %v", got)
	}
}

// The ports of a job do not change, because agents of different builds must try the same ports. The expected ports were computed
// independently, in Python.
func TestPortsAreFixed(t *testing.T) {
	want := []int{64923, 61118, 61849}
	if got := Ports("job", 3); !slices.Equal(got, want) {
		t.Errorf("ports are %v, want %v", got, want)
	}
}

func TestListenersOnSeveralAddressesAgree(t *testing.T) {
	hosts := []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}
	ports := []int{givenPort(t)}
	all, err := listenFirst(hosts, ports)
	must(t, err)
	if len(all) != len(hosts) {
		t.Fatalf("there are %d listeners", len(all))
	}
	for i, l := range all {
		if got, want := l.Addr().String(), joinPort(hosts[i], all.port()); got != want {
			t.Errorf("a listener is at %s, want %s", got, want)
		}
	}
	must(t, all.close())
	again, err := listenFirst(hosts, ports)
	must(t, err)
	must(t, again.close())
}

// A port that is taken on one of the addresses is skipped, and is free again on the other addresses.
func TestListenWhereAPortIsTaken(t *testing.T) {
	// A port that the kernel chooses at 127.0.0.2 may be in use by a connection from 127.0.0.1.
	other, err := net.Listen("tcp", joinPort("127.0.0.2", givenPort(t)))
	must(t, err)
	defer other.Close()
	ports := []int{portOf(other), givenPort(t)}
	l, err := listenFirst([]string{"127.0.0.1", "127.0.0.2"}, ports)
	must(t, err)
	defer l.close()
	if l.port() != ports[1] {
		t.Errorf("listens on port %d of %v", l.port(), ports)
	}
	again, err := net.Listen("tcp", joinPort("127.0.0.1", ports[0]))
	if err != nil {
		t.Errorf("the first address is still taken: %v", err)
	} else {
		again.Close()
	}
	if _, err := listenFirst([]string{"192.0.2.250"}, ports); !errors.Is(err, syscall.EADDRNOTAVAIL) { // reserved by RFC 5737
		t.Errorf("an address of no interface: %v", err)
	}
	if port, err := freePort([]int{portOf(other), ports[1]}); err == nil {
		t.Errorf("port %d is taken on some address of this machine, and found free", port)
	}
	if got := slices.Max(anyPort); got != 0 {
		t.Errorf("any port is %d", got)
	}
}
