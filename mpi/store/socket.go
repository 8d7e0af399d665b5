package store

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// A connection whose other end is gone without a word is noticed within about
// 20 seconds: while it is idle by three keep-alive probes that nobody answers
// (tcp(7): TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT), while data is under way by
// TCP_USER_TIMEOUT (RFC 5482).
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

const userTimeout = 20 * time.Second

// tune sets these on a TCP connection. Others are left as they are.
func tune(conn net.Conn) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := tcp.SetKeepAliveConfig(keepAlive); err != nil {
		return fmt.Errorf("set keep-alive: %w", err)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return fmt.Errorf("set the user timeout: %w", err)
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
	if err == nil {
		err = setErr
	}
	if err != nil {
		return fmt.Errorf("set the user timeout: %w", err)
	}
	return nil
}
