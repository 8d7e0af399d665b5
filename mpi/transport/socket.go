package transport

import (
	"fmt"
	"net"
	"time"
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
	return nil
}
