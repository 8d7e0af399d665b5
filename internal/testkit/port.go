package testkit

import (
	"errors"
	"net"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// FreePort returns a TCP port of host, an IPv4 address, that nobody else gets before the test ends. A socket has it that does not listen, and
// leaves it to one that does (socket(7), SO_REUSEADDR); the kernel gives it to nobody who leaves the choice to it.
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
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte(addr.IP.To4())}))
	name, nameErr := unix.Getsockname(fd)
	if err := errors.Join(err, nameErr); err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(name.(*unix.SockaddrInet4).Port)
}
