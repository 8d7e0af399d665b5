package launch

import (
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
)

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
