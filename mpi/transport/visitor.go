package transport

import (
	"fmt"
	"net"
	"time"
)

// visitor is a connection that has proved itself.
type visitor struct {
	conn    sealedConn
	hello   hello
	release func() bool // keeps the end of the meeting from closing conn, unless it has already
}

func (v *visitor) refuse(reply answer) error {
	v.conn.keys.say(v.conn, byte(reply))
	return reply.err()
}

// admit says welcome, and returns with what that was confirmed. The connection then outlives the meeting.
func (v *visitor) admit(reply answer) (use byte, err error) {
	if err := tune(v.conn.TCPConn); err != nil {
		return 0, err
	}
	if err := v.conn.keys.say(v.conn, byte(reply)); err != nil {
		return 0, fmt.Errorf("welcome it: %w", err)
	}
	if use, err = v.conn.keys.hear(v.conn); err != nil {
		return 0, fmt.Errorf("wait for it to confirm its welcome: %w", err)
	}
	if use != useNoMemory && (use != useMemory || reply != sharing) {
		return 0, fmt.Errorf("%w: it confirms its welcome with %d", ErrProtocol, use)
	}
	if !v.release() {
		return 0, net.ErrClosed
	}
	return use, v.conn.SetDeadline(time.Time{})
}
