package store

import "ddpbatch/internal/auth"

// Secret is the secret that the processes of one run share: 32 bytes that no one else knows. [NewSecret] generates one, and
// [ParseSecret] parses the text of its Hex method. The zero Secret is not a secret: Dial and Open return [ErrNoSecret] for it, and
// a server that has it admits no clients. These are its methods:
//
//	Hex() string                     64 hexadecimal digits: the form for an environment, or a file of mode 0600
//	Derive(words ...string) Secret   another secret, derived from this one and the words, which does not reveal this one
//	Equal(other Secret) bool         a comparison in constant time
//	IsZero() bool                    whether it was never set
//
// A Secret that is printed, logged or marshaled as text or JSON shows a placeholder. Package fmt does not call its methods in two
// cases: for %p, and for a struct that holds a Secret in an unexported field. Do not print such a struct, and do not encode one
// with gob or encoding/binary.
type Secret = auth.Secret

// NewSecret generates a random Secret. Call it once for all processes of a run.
func NewSecret() Secret { return auth.NewSecret() }

// ParseSecret parses 64 hexadecimal digits, the form that Secret's Hex returns. Its errors do not show the text.
func ParseSecret(text string) (Secret, error) { return auth.ParseSecret(text) }

// Binding identifies what a store is for. A server and its clients must have the same one, or they refuse each other, so a client
// of another run or attempt is not admitted by mistake. A Binding is not secret. These are its fields:
//
//	Run     string   the run's id
//	Attempt int      which start of the run, from 1; 0 without attempts
//	Role    string   what the store is for, such as "store"
type Binding = auth.Binding

const (
	// HandshakeTimeout is how long either side of a new connection may take to prove that it knows the secret.
	HandshakeTimeout = auth.Timeout // 10 s

	// MaxName is the longest name of a client, in bytes.
	MaxName = auth.MaxHello // 4096
)

var (
	// ErrNoSecret means that the Secret is the zero Secret.
	ErrNoSecret = auth.ErrNoSecret

	// ErrRefused means that a server does not accept this side's proof: it has another secret, or serves another run, attempt or role.
	ErrRefused = auth.ErrRefused

	// ErrOtherSecret is an [ErrRefused] of a server that, by its digest, is this run's store, but has another secret.
	ErrOtherSecret error = otherSecretError{}
)

type otherSecretError struct{}

func (otherSecretError) Error() string {
	return "this very run refused this side's secret, which is another one: give all the same DDPBATCH_SECRET, or the same key file"
}

func (otherSecretError) Unwrap() error { return ErrRefused }
