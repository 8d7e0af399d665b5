package secure

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"ddpbatch/internal/auth"
)

// accepted is the server's answer to an authenticated client.
const accepted = 1

// Open encrypts a connection that was dialed, after both sides have proved that they know the secret. It sends name, of at most
// auth.MaxHello bytes, to the server in encrypted form. After an error conn must not be used; the caller closes it.
//
// If the server has another binding, or refuses this side, the error is auth.ErrRefused. If the server has this binding but another key,
// the error is auth.ErrUnproved.
func (c *Client) Open(ctx context.Context, conn net.Conn, name string) (opened net.Conn, err error) {
	if len(name) > auth.MaxHello {
		return nil, fmt.Errorf("open a connection: the name has %d bytes, more than %d", len(name), auth.MaxHello)
	}
	err = auth.Within(ctx, conn, auth.Timeout, func() error {
		digest, err := c.greet(conn)
		if err != nil {
			return err
		}
		secured := tls.Client(conn, c.config)
		err = introduce(secured, name)
		if errors.Is(err, auth.ErrUnproved) {
			// The server should receive the alert. Unread data from the server would make the system reset the connection instead. The time
			// limit is for servers that never close.
			conn.SetReadDeadline(time.Now().Add(time.Second))
			io.CopyN(io.Discard, conn, auth.MaxHello)
		}
		switch {
		case err == nil:
			opened = secured
		case isRefusal(err) && !bytes.Equal(digest, c.bindingDigest), isAlert(err):
			return auth.ErrRefused
		}
		return foreign(err)
	})
	if err != nil {
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return opened, nil
}

// greet sends this side's version to the server, and returns the digest in the server's greeting.
func (c *Client) greet(conn net.Conn) ([]byte, error) {
	if err := auth.GreetServer(conn); err != nil {
		return nil, err
	}
	digest := make([]byte, len(c.bindingDigest))
	if _, err := io.ReadFull(conn, digest); err != nil {
		return nil, fmt.Errorf("read the run that it serves: %w", err)
	}
	return digest, nil
}

// introduce sends the name, and waits for the server to accept it, because the client's part of the handshake ends before the server's.
func introduce(conn *tls.Conn, name string) error {
	if err := conn.Handshake(); err != nil {
		return err
	}
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(name))), name...)); err != nil {
		return err
	}
	var answer [1]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	if answer[0] != accepted {
		return fmt.Errorf("%w: it answered with byte %d", auth.ErrProtocol, answer[0])
	}
	return nil
}

// Open encrypts a connection that was accepted, as Client.Open does. It returns the client's name.
func (s *Server) Open(ctx context.Context, conn net.Conn) (opened net.Conn, name []byte, err error) {
	err = auth.Within(ctx, conn, auth.Timeout, func() error {
		preface, err := auth.GreetClient(conn)
		if err != nil {
			return err
		}
		if _, err := conn.Write(append(preface, s.bindingDigest...)); err != nil {
			return fmt.Errorf("send the version: %w", err)
		}
		secured := tls.Server(conn, s.config)
		if name, err = receiveName(secured); err != nil {
			if isAlert(err) { // the client found that this side's key is not the expected one
				return auth.ErrUnproved
			}
			return foreign(err)
		}
		opened = secured
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("handshake: %w", err)
	}
	return opened, name, nil
}

// receiveName reads a client's name, and accepts it.
func receiveName(conn *tls.Conn) ([]byte, error) {
	if err := conn.Handshake(); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint16(size[:]))
	if length > auth.MaxHello {
		return nil, fmt.Errorf("%w: its name has %d bytes, more than %d", auth.ErrProtocol, length, auth.MaxHello)
	}
	name := make([]byte, length)
	if _, err := io.ReadFull(conn, name); err != nil {
		return nil, err
	}
	_, err := conn.Write([]byte{accepted})
	return name, err
}

// isAlert reports whether the other side ended the handshake with an alert (RFC 8446, section 6).
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// isRefusal reports whether a handshake failed because of one of the sides, and not because the connection broke.
func isRefusal(err error) bool { return isAlert(err) || errors.Is(err, auth.ErrUnproved) }

// foreign marks an error of TLS as one of a peer that does not speak this protocol. Errors of the connection or of the peer's proof stay
// unchanged.
func foreign(err error) error {
	var network net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "local error": // the alert that this side sent
	case err == nil, errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case errors.Is(err, auth.ErrUnproved), errors.Is(err, auth.ErrProtocol), errors.Is(err, net.ErrClosed):
		return err
	}
	return fmt.Errorf("%w: %w", auth.ErrProtocol, err)
}
