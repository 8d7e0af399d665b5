package auth

import (
	"context"
	"net"
)

// Secret is what the ranks of one run share: 32 random bytes.
type Secret [32]byte

// Binding names what a handshake is for. Both sides must hold the same
// binding, or neither proof verifies.
type Binding struct {
	Run     string // the run's id
	Attempt int    // its attempt, from 1; 0 where attempts do not exist
	Role    string // what the connection is for: "store", "transport"
}

func NewSecret() (Secret, error) { panic("stub") }

// ParseSecret reads 64 hexadecimal digits.
func ParseSecret(text string) (Secret, error) { panic("stub") }

// Hex is the form that travels in the environment.
func (s Secret) Hex() string { panic("stub") }

// Derive makes another secret out of s, bound to the given words.
func (s Secret) Derive(words ...string) Secret { panic("stub") }

// Client proves to the server at the other end of conn that it knows the
// secret, and checks the server's proof. hello goes to the server, and the
// server's own comes back, both covered by the proofs; at most 4 KiB each.
func Client(ctx context.Context, conn net.Conn, s Secret, b Binding, hello []byte) (peer []byte, err error) {
	panic("stub")
}

// Server is the other side of Client.
func Server(ctx context.Context, conn net.Conn, s Secret, b Binding, hello []byte) (peer []byte, err error) {
	panic("stub")
}
