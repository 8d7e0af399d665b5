package testkit

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// FreePort returns a TCP port of host, an IPv4 address, that no other program gets before the test ends. A socket that does not listen is
// bound to it, so that another socket may listen on it (socket(7), SO_REUSEADDR), but the kernel does not assign it to sockets that ask for
// any port.
func FreePort(t testing.TB, host string) string {
	t.Helper()
	addr, err := net.ResolveTCPAddr("tcp4", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte(addr.IP.To4())}))
	name, nameErr := unix.Getsockname(fd)
	if err := errors.Join(err, nameErr); err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(name.(*unix.SockaddrInet4).Port)
}

// FreePorts returns the first of n consecutive TCP ports that are free on all IPv4 addresses, and that no other program gets before the
// test ends, as with FreePort. They are in the range from which the kernel assigns ports (ip(7), ip_local_port_range), where package
// rendezvous does not look for ports.
func FreePorts(t testing.TB, n int) (first int) {
	t.Helper()
	for range 1000 {
		first = 33000 + rand.IntN(27000)
		held, err := holdPorts(first, n)
		if err == nil {
			t.Cleanup(func() { closeAll(held) })
			return first
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			t.Fatal(err)
		}
	}
	t.Fatalf("no %d consecutive ports are free", n)
	return 0
}

// holdPorts binds a socket to each of n ports. It permits others to listen on them only when it has all of them, so that two tests do not
// hold the same port.
func holdPorts(first, n int) (held []int, err error) {
	for port := first; port < first+n; port++ {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, errors.Join(err, closeAll(held))
		}
		held = append(held, fd)
		err = errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Port: port}), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
		if err != nil {
			return nil, errors.Join(err, closeAll(held))
		}
	}
	return held, nil
}

func closeAll(fds []int) error {
	var errs []error
	for _, fd := range fds {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}
