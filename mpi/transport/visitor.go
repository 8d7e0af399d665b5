package transport

import (
	"fmt"
	"io"
	"net"
	"time"
)

// visitor is a connection that has proved itself.
type visitor struct {
	conn    *net.TCPConn
	hello   hello
	release func() bool // keeps the end of the meeting from closing conn, unless it has already
}

func (v *visitor) refuse(reply answer) error {
	v.conn.Write([]byte{byte(reply)})
	return reply.err()
}

// admit says welcome, and returns with what that was confirmed. The connection then outlives the meeting.
func (v *visitor) admit(reply answer) (use byte, err error) {
	if err := tune(v.conn); err != nil {
		return 0, err
	}
	if _, err := v.conn.Write([]byte{byte(reply)}); err != nil {
		return 0, fmt.Errorf("welcome it: %w", err)
	}
	var buf [1]byte
	if _, err := io.ReadFull(v.conn, buf[:]); err != nil {
		return 0, fmt.Errorf("wait for it to confirm its welcome: %w", err)
	}
	if use = buf[0]; use != useNoMemory && (use != useMemory || reply != sharing) {
		return 0, fmt.Errorf("%w: it confirms its welcome with %d", ErrProtocol, use)
	}
	if !v.release() {
		return 0, net.ErrClosed
	}
	return use, v.conn.SetDeadline(time.Time{})
}
