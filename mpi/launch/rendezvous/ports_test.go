package rendezvous

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
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

// Agents of one job in different builds must try the same ports: these were worked out
// apart from this code, in Python.
func TestPortsAreFixed(t *testing.T) {
	want := []int{64923, 61118, 61849}
	if got := Ports("job", 3); !slices.Equal(got, want) {
		t.Errorf("ports are %v, want %v", got, want)
	}
}

// One port of several addresses is one listener.
func TestListenOnSeveralAddresses(t *testing.T) {
	l, err := listenFirst([]string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}, anyPort)
	must(t, err)
	port := portOf(l)
	for _, host := range []string{"127.0.0.3", "127.0.0.1", "127.0.0.2"} {
		there, err := net.Dial("tcp", joinPort(host, port))
		must(t, err)
		here, err := l.Accept()
		must(t, err)
		if got := here.LocalAddr().String(); got != joinPort(host, port) {
			t.Errorf("%s was reached by %s", joinPort(host, port), got)
		}
		here.Close()
		there.Close()
	}
	if conn, err := net.Dial("tcp", joinPort("127.0.0.4", port)); err == nil {
		conn.Close()
		t.Error("it listens on an address that was not named")
	}
	waiting, err := net.Dial("tcp", joinPort("127.0.0.2", port)) // nobody accepts it
	must(t, err)
	ended := make(chan error)
	go func() {
		for {
			if conn, err := l.Accept(); err != nil {
				ended <- err
				return
			} else {
				conn.Close()
			}
		}
	}()
	must(t, l.Close())
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept ended with %v", err)
	}
	if _, err := waiting.Read(make([]byte, 1)); err == nil || errors.Is(err, io.ErrNoProgress) {
		t.Errorf("the connection that nobody took lives: %v", err)
	}
	waiting.Close()
	must(t, l.Close())
}

// A port that is taken on one of the addresses is passed over, and leaves nothing behind.
func TestListenWhereAPortIsTaken(t *testing.T) {
	// One that the kernel gives at 127.0.0.2 may be that of a connection from 127.0.0.1.
	other, err := net.Listen("tcp", joinPort("127.0.0.2", givenPort(t)))
	must(t, err)
	defer other.Close()
	ports := []int{portOf(other), givenPort(t)}
	l, err := listenFirst([]string{"127.0.0.1", "127.0.0.2"}, ports)
	must(t, err)
	defer l.Close()
	if portOf(l) != ports[1] {
		t.Errorf("listens on port %d of %v", portOf(l), ports)
	}
	again, err := net.Listen("tcp", joinPort("127.0.0.1", ports[0]))
	if err != nil {
		t.Errorf("the first address is still taken: %v", err)
	} else {
		again.Close()
	}
	if _, err := listenFirst([]string{"192.0.2.250"}, ports); !errors.Is(err, syscall.EADDRNOTAVAIL) { // RFC 5737
		t.Errorf("an address of no interface: %v", err)
	}
	if port, err := freePort([]int{portOf(other), ports[1]}); err == nil {
		t.Errorf("port %d is taken on some address of this machine, and found free", port)
	}
	if got := slices.Max(anyPort); got != 0 {
		t.Errorf("any port is %d", got)
	}
}

// Whatever is in the place of the port that agent 0 leaves leads nowhere.
func TestSavedPort(t *testing.T) {
	c := Config{Identity: Identity{RunDir: newRunDir(t), Attempt: 1}}
	if port, err := c.savedPort(); !errors.Is(err, errNoSavedPort) {
		t.Errorf("no file: %d, %v", port, err)
	}
	must(t, c.savePort(4711))
	if port, err := c.savedPort(); port != 4711 || err != nil {
		t.Errorf("%d, %v", port, err)
	}
	for text, says := range map[string]string{
		`{"port":0}`: "0 is not a port", `{"port":70000}`: "70000 is not a port", "x": "invalid character", "{}": "0 is not a port",
	} {
		must(t, c.RunDir.WriteReach(c.Attempt, 0, []byte(text)))
		if port, err := c.savedPort(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %d, %v", text, port, err)
		}
	}
}
