package store

import (
	"crypto/tls"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSocketOptions reads back, with getsockopt(2), what tcp(7) says makes a
// cut cable show within 20 seconds.
func TestSocketOptions(t *testing.T) {
	s := serve(t, ServerConfig{})
	c := connect(t, s)
	accepted := make(chan net.Conn, 1)
	l := listen(t)
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err == nil {
			tune(conn)
		}
		accepted <- conn
	}()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far := <-accepted
	defer far.Close()

	for name, conn := range map[string]net.Conn{"dialled": c.conn.(*tls.Conn).NetConn(), "accepted": far} {
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) {
			for _, o := range []struct {
				name                string
				level, option, want int
			}{
				{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
				{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 5},
				{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 5},
				{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
				{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 20_000},
				{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			} {
				if got, err := unix.GetsockoptInt(int(fd), o.level, o.option); err != nil || got != o.want {
					t.Errorf("%s, %s: %d, %v; want %d", name, o.name, got, err, o.want)
				}
			}
		})
	}
}
