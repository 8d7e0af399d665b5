package auth

import (
	"errors"
	"fmt"
)

var (
	// ErrRefused is what a client gets from a server that does not accept its proof.
	ErrRefused = errors.New("the server refused this run's secret: the secret is another one, or the server serves another run, attempt or role")

	// ErrUnproved is what either side gets of a peer whose proof is wrong.
	ErrUnproved = errors.New("the peer did not prove that it knows this run's secret")

	// ErrProtocol is what either side gets of a peer that does not speak this
	// protocol; where it is a ddpbatch of another version, the error is a [VersionError].
	ErrProtocol = errors.New("the peer is not a ddpbatch that this one can talk to")

	// ErrNoSecret is what a handshake with the zero Secret gives.
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
