package auth

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"
)

const (
	// Version is the version of everything that ddpbatch sends between its processes: the
	// handshake, and what store and transport send after it.
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
	Attempt int    // its attempt, from 1; 0 if there are no attempts
	Role    string // what the connection is for: "store", "agents", "transport"
}

// Digest returns a digest of b. Different bindings have different digests. A digest contains no secret, and proves nothing.
func (b Binding) Digest() []byte {
	digest := Secret{}.mac("binding", b.Run, strconv.Itoa(b.Attempt), b.Role) // without a key: it is public
	return digest[:]
}

// Client proves to the server at the other end of conn that it knows the
// secret, and checks the server's proof. It sends hello to the server, and
// returns the server's own hello; both are covered by the proofs, and have at most MaxHello bytes
// each. They are not secret: each is sent before the other side has proved itself.
func Client(ctx context.Context, conn net.Conn, s Secret, b Binding, hello []byte) (peer []byte, err error) {
	return handshake(ctx, conn, s, hello, func() ([]byte, error) { return clientSide(conn, s, b, hello) })
}

// Server is the other side of Client. If the client's proof is wrong, Server sends
// it one byte that says so, and returns ErrUnproved.
func Server(ctx context.Context, conn net.Conn, s Secret, b Binding, hello []byte) (peer []byte, err error) {
	return handshake(ctx, conn, s, hello, func() ([]byte, error) { return serverSide(conn, s, b, hello) })
}

var (
	// ErrRefused is the client's error if the server does not accept its proof.
	ErrRefused = errors.New("the server refused this run's secret: the secrets differ, or the server serves " +
		"another run, attempt or role")

	// ErrUnproved is the error of either side if the peer's proof is wrong.
	ErrUnproved = errors.New("the peer did not prove that it knows this run's secret")

	// ErrProtocol is the error of either side if the peer does not speak this
	// protocol. If the peer is a ddpbatch of another version, the error is a [VersionError].
	ErrProtocol = errors.New("the peer is not a ddpbatch that this one can talk to")

	// ErrNoSecret is the error of a handshake with the zero Secret.
	ErrNoSecret = errors.New("no secret is set")
)

// VersionError says that the peer is a ddpbatch of another protocol version. It
// matches ErrProtocol.
type VersionError struct {
	Ours, Theirs uint16
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the peer speaks version %d of ddpbatch's protocol, this side version %d: run the same build on every node",
		e.Theirs, e.Ours)
}

// Unwrap makes errors.Is find ErrProtocol.
func (e *VersionError) Unwrap() error { return ErrProtocol }

// handshake runs one side of the handshake within ctx and Timeout.
func handshake(ctx context.Context, conn net.Conn, s Secret, hello []byte, side func() ([]byte, error)) ([]byte, error) {
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
	err := GreetServer(conn)
	if err != nil {
		return nil, err
	}
	if t.serverNonce, t.serverHello, err = readChallenge(conn); err != nil {
		return nil, err
	}
	t.clientNonce = newNonce()
	proof := t.proof(s, "client")
	if _, err = conn.Write(append(appendChallenge(nil, t.clientNonce, hello), proof[:]...)); err != nil {
		return nil, fmt.Errorf("send the proof: %w", err)
	}
	if err = readAnswer(conn); err != nil {
		return nil, err
	}
	if err = readProof(conn, t.proof(s, "server")); err != nil {
		return nil, err
	}
	return t.serverHello, nil
}

func serverSide(conn net.Conn, s Secret, b Binding, hello []byte) ([]byte, error) {
	t := transcript{binding: b, serverHello: hello}
	preface, err := GreetClient(conn)
	if err != nil {
		return nil, err
	}
	t.serverNonce = newNonce()
	if _, err = conn.Write(appendChallenge(preface, t.serverNonce, hello)); err != nil {
		return nil, fmt.Errorf("send the challenge: %w", err)
	}
	if t.clientNonce, t.clientHello, err = readChallenge(conn); err != nil {
		return nil, err
	}
	if err = readProof(conn, t.proof(s, "client")); err != nil {
		conn.Write([]byte{refused}) // tells the client; an error adds nothing to the one that is returned
		return nil, err
	}
	proof := t.proof(s, "server")
	if _, err = conn.Write(append([]byte{accepted}, proof[:]...)); err != nil {
		return nil, fmt.Errorf("send the proof: %w", err)
	}
	return t.clientHello, nil
}

// transcript holds what the two sides have sent, and their binding: what the proofs cover.
type transcript struct {
	binding                  Binding
	clientNonce, serverNonce nonce
	clientHello, serverHello []byte
}

// proof returns the proof that the named side must show.
func (t *transcript) proof(s Secret, side string) Secret {
	return s.mac("handshake", side, strconv.Itoa(Version),
		t.binding.Run, strconv.Itoa(t.binding.Attempt), t.binding.Role,
		string(t.clientNonce[:]), string(t.serverNonce[:]),
		string(t.clientHello), string(t.serverHello))
}

type nonce [32]byte

func newNonce() (n nonce) {
	rand.Read(n[:]) // never returns an error (crypto/rand)
	return n
}

const magic = "ddpbatch"

// The server's answer to a client's proof.
const (
	refused  = 0
	accepted = 1
)

// AppendPreface appends the bytes that both sides of every connection send first: a magic word and a version. Their form never changes, so
// that sides of different versions recognize each other.
func AppendPreface(buf []byte, version uint16) []byte {
	return binary.BigEndian.AppendUint16(append(buf, magic...), version)
}

// ReadPreface reads the peer's preface and returns its version.
func ReadPreface(r io.Reader) (uint16, error) {
	var buf [len(magic) + 2]byte
	if _, err := io.ReadFull(r, buf[:]); err != nil {
		return 0, fmt.Errorf("read the peer's version: %w", err)
	}
	if string(buf[:len(magic)]) != magic {
		return 0, fmt.Errorf("%w: it began with %q", ErrProtocol, buf[:len(magic)])
	}
	return binary.BigEndian.Uint16(buf[len(magic):]), nil
}

// GreetServer sends a client's preface, and reads the server's.
func GreetServer(conn io.ReadWriter) error {
	if _, err := conn.Write(AppendPreface(nil, Version)); err != nil {
		return fmt.Errorf("send the version: %w", err)
	}
	theirs, err := ReadPreface(conn)
	if err == nil && theirs != Version {
		err = &VersionError{Ours: Version, Theirs: theirs}
	}
	return err
}

// GreetClient reads a client's preface, and returns the server's, which the caller sends before the server's next bytes. To a client of
// another version GreetClient sends it at once.
func GreetClient(conn io.ReadWriter) (preface []byte, err error) {
	theirs, err := ReadPreface(conn)
	if err != nil {
		return nil, err
	}
	preface = AppendPreface(nil, Version)
	if theirs != Version {
		conn.Write(preface) // tells the client; an error adds nothing to the one that is returned
		return nil, &VersionError{Ours: Version, Theirs: theirs}
	}
	return preface, nil
}

func appendChallenge(buf []byte, n nonce, hello []byte) []byte {
	buf = append(buf, n[:]...)
	buf = binary.BigEndian.AppendUint16(buf, uint16(len(hello)))
	return append(buf, hello...)
}

func readChallenge(r io.Reader) (n nonce, hello []byte, err error) {
	var head [len(n) + 2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return n, nil, fmt.Errorf("read the peer's challenge: %w", err)
	}
	copy(n[:], head[:])
	size := int(binary.BigEndian.Uint16(head[len(n):]))
	if size > MaxHello {
		return n, nil, fmt.Errorf("%w: its hello has %d bytes, more than %d", ErrProtocol, size, MaxHello)
	}
	hello = make([]byte, size)
	if _, err := io.ReadFull(r, hello); err != nil {
		return n, nil, fmt.Errorf("read the peer's hello: %w", err)
	}
	return n, hello, nil
}

func readAnswer(r io.Reader) error {
	var answer [1]byte
	if _, err := io.ReadFull(r, answer[:]); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	switch answer[0] {
	case accepted:
		return nil
	case refused:
		return ErrRefused
	}
	return fmt.Errorf("%w: it answered a proof with byte %d", ErrProtocol, answer[0])
}

func readProof(r io.Reader, want Secret) error {
	var got Secret
	if _, err := io.ReadFull(r, got[:]); err != nil {
		return fmt.Errorf("read the peer's proof: %w", err)
	}
	if !got.Equal(want) {
		return ErrUnproved
	}
	return nil
}

// Within runs exchange, which reads and writes conn, and makes it end with ctx, or
// after limit if ctx has no deadline. After success conn has no deadline.
func Within(ctx context.Context, conn net.Conn, limit time.Duration, exchange func() error) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(limit)
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("set a deadline: %w", err)
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		conn.SetDeadline(time.Unix(1, 0)) // in the past: whoever reads or writes returns
		close(interrupted)
	})
	err := exchange()
	if !stop() {
		<-interrupted // otherwise it might set its deadline after ours is cleared
		return context.Cause(ctx)
	}
	switch {
	case err == nil:
		return conn.SetDeadline(time.Time{})
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case ok: // the connection's clock was a moment ahead of the context's
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return fmt.Errorf("no answer within %v: %w", limit, err)
}
