package auth

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"strconv"
	"time"
)

const (
	// Version is that of everything that ddpbatch sends between its processes: the
	// handshake, and what store and transport say after it.
	Version = 2

	// MaxHello is the longest hello, in bytes.
	MaxHello = 4096

	// Timeout bounds a handshake whose context has no deadline.
	Timeout = 10 * time.Second
)

// Binding names what a handshake is for. Both sides must hold the same
// binding, or neither proof verifies.
type Binding struct {
	Run     string // the run's id
	Attempt int    // its attempt, from 1; 0 where attempts do not exist
	Role    string // what the connection is for: "store", "agents", "transport"
}

// Fingerprint is a digest of b, the same for equal bindings alone. It shows nothing that is secret, and proves nothing.
func (b Binding) Fingerprint() []byte {
	digest := Secret{}.mac("binding", b.Run, strconv.Itoa(b.Attempt), b.Role) // no key: it is for everybody
	return digest[:]
}

// Client proves to the server at the other end of conn that it knows the
// secret, and checks the server's proof. hello goes to the server, and the
// server's own comes back, both covered by the proofs; at most MaxHello bytes
// each. They are not secret: each is sent before the other side has proved anything.
func Client(ctx context.Context, conn net.Conn, s Secret, b Binding, hello []byte) (peer []byte, err error) {
	return shake(ctx, conn, s, hello, func() ([]byte, error) { return clientSide(conn, s, b, hello) })
}

// Server is the other side of Client. A client whose proof is wrong is told so
// in one byte, and Server returns ErrUnproved.
func Server(ctx context.Context, conn net.Conn, s Secret, b Binding, hello []byte) (peer []byte, err error) {
	return shake(ctx, conn, s, hello, func() ([]byte, error) { return serverSide(conn, s, b, hello) })
}

// shake runs one side of the handshake within ctx and Timeout.
func shake(ctx context.Context, conn net.Conn, s Secret, hello []byte, side func() ([]byte, error)) ([]byte, error) {
	if s.IsZero() {
		return nil, fmt.Errorf("handshake: %w", ErrNoSecret)
	}
	if len(hello) > MaxHello {
		return nil, fmt.Errorf("handshake: the hello has %d bytes, more than %d", len(hello), MaxHello)
	}
	var peer []byte
	err := Within(ctx, conn, Timeout, func() (err error) {
		peer, err = side()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return peer, nil
}

func clientSide(conn net.Conn, s Secret, b Binding, hello []byte) ([]byte, error) {
	t := transcript{binding: b, clientHello: hello}
	var err error
	if _, err = conn.Write(AppendPreface(nil, Version)); err != nil {
		return nil, fmt.Errorf("send the version: %w", err)
	}
	theirs, err := ReadPreface(conn)
	if err != nil {
		return nil, err
	}
	if theirs != Version {
		return nil, &VersionError{Ours: Version, Theirs: theirs}
	}
	if t.serverNonce, t.serverHello, err = readChallenge(conn); err != nil {
		return nil, err
	}
	if t.clientNonce, err = newNonce(); err != nil {
		return nil, err
	}
	proof := t.proof(s, "client")
	if _, err = conn.Write(append(appendChallenge(nil, t.clientNonce, hello), proof[:]...)); err != nil {
		return nil, fmt.Errorf("send the proof: %w", err)
	}
	if err = readVerdict(conn); err != nil {
		return nil, err
	}
	if err = readProof(conn, t.proof(s, "server")); err != nil {
		return nil, err
	}
	return t.serverHello, nil
}

func serverSide(conn net.Conn, s Secret, b Binding, hello []byte) ([]byte, error) {
	t := transcript{binding: b, serverHello: hello}
	theirs, err := ReadPreface(conn)
	if err != nil {
		return nil, err
	}
	preface := AppendPreface(nil, Version)
	if theirs != Version {
		conn.Write(preface) // so that the client can tell; what is wrong is known already
		return nil, &VersionError{Ours: Version, Theirs: theirs}
	}
	if t.serverNonce, err = newNonce(); err != nil {
		return nil, err
	}
	if _, err = conn.Write(appendChallenge(preface, t.serverNonce, hello)); err != nil {
		return nil, fmt.Errorf("send the challenge: %w", err)
	}
	if t.clientNonce, t.clientHello, err = readChallenge(conn); err != nil {
		return nil, err
	}
	if err = readProof(conn, t.proof(s, "client")); err != nil {
		conn.Write([]byte{refused}) // as above
		return nil, err
	}
	proof := t.proof(s, "server")
	if _, err = conn.Write(append([]byte{accepted}, proof[:]...)); err != nil {
		return nil, fmt.Errorf("send the proof: %w", err)
	}
	return t.clientHello, nil
}

// transcript is all that the two sides have said and meant: what proofs cover.
type transcript struct {
	binding                  Binding
	clientNonce, serverNonce nonce
	clientHello, serverHello []byte
}

// proof is what the named side must show.
func (t *transcript) proof(s Secret, side string) Secret {
	return s.mac("handshake", side, strconv.Itoa(Version),
		t.binding.Run, strconv.Itoa(t.binding.Attempt), t.binding.Role,
		string(t.clientNonce[:]), string(t.serverNonce[:]),
		string(t.clientHello), string(t.serverHello))
}

type nonce [32]byte

func newNonce() (nonce, error) {
	var n nonce
	if _, err := rand.Read(n[:]); err != nil {
		return n, fmt.Errorf("make a nonce: %w", err)
	}
	return n, nil
}
