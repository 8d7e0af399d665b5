package store

import "ddpbatch/internal/auth"

// Secret is what the processes of one run share: 32 bytes that nobody else knows. [NewSecret] makes one, and [ParseSecret] reads
// what Hex gives. The zero Secret is none: Dial and Open return [ErrNoSecret], and a server that has it lets nobody in. These are its
// methods:
//
//	Hex() string                     64 hexadecimal digits: the form for an environment, or a file of mode 0600
//	Derive(words ...string) Secret   another secret, made of this one and the words, which does not give this one away
//	Equal(other Secret) bool         a comparison in a time that does not depend on the bytes
//	IsZero() bool                    whether it was never set
//
// Printing, logging or marshalling a Secret as text or JSON shows a placeholder. Package fmt asks no method in two cases: for %p, and for a
// struct that holds a Secret in an unexported field. Do not print such a struct, and do not encode one with gob or encoding/binary.
type Secret = auth.Secret

// NewSecret makes a Secret at random, once for all processes of a run.
func NewSecret() Secret { return auth.NewSecret() }

// ParseSecret reads 64 hexadecimal digits, as Secret's Hex gives them. Its errors do not show the text.
func ParseSecret(text string) (Secret, error) { return auth.ParseSecret(text) }

// Binding names what a store is for. A server and its clients have the same one, or they refuse each other: a client of another run or
// attempt does not get in by mistake. It is no secret. These are its fields:
//
//	Run     string   the run's id
//	Attempt int      which start of the run, from 1; 0 where there are no attempts
//	Role    string   what the store is for, such as "store"
type Binding = auth.Binding

const (
	// HandshakeTimeout is how long either side of a new connection may take to prove that it knows the secret.
	HandshakeTimeout = auth.Timeout // 10 s

	// MaxName is the longest name of a client, in bytes.
	MaxName = auth.MaxHello // 4096
)

var (
	// ErrNoSecret says that the Secret is the zero one.
	ErrNoSecret = auth.ErrNoSecret

	// ErrRefused says that a server does not accept this side's proof: it has another secret, or it serves another run, attempt or role.
	ErrRefused = auth.ErrRefused

	// ErrOtherSecret is an [ErrRefused] of the very store that was looked for, by what that says of itself: it has another secret.
	ErrOtherSecret error = otherSecretError{}
)

type otherSecretError struct{}

func (otherSecretError) Error() string {
	return "this very run refused this side's secret, which is another one: give all the same DDPBATCH_SECRET, or the same key file"
}

func (otherSecretError) Unwrap() error { return ErrRefused }
