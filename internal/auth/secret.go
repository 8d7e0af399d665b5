package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// Secret is what the ranks of one run share: 32 random bytes. The zero Secret stands
// for none, and no handshake accepts it.
//
// Printing, logging or marshalling a Secret shows a placeholder. Two gaps are
// left, where fmt asks no method: %p, and a struct that holds a Secret in an
// unexported field. Types that hold one privately must not be printed.
type Secret [32]byte

const redacted = "[secret]"

// NewSecret makes a secret from the system's source of randomness.
func NewSecret() (Secret, error) {
	var s Secret
	if _, err := rand.Read(s[:]); err != nil {
		return Secret{}, fmt.Errorf("make a secret: %w", err)
	}
	return s, nil
}

// ParseSecret reads 64 hexadecimal digits, the form that Hex gives. Its errors
// do not show the text.
func ParseSecret(text string) (Secret, error) {
	var s Secret
	if len(text) != hex.EncodedLen(len(s)) {
		return Secret{}, fmt.Errorf("parse a secret: it has %d characters, and should have %d hexadecimal digits",
			len(text), hex.EncodedLen(len(s)))
	}
	if _, err := hex.Decode(s[:], []byte(text)); err != nil {
		return Secret{}, errors.New("parse a secret: it has characters that are no hexadecimal digits")
	}
	if s.IsZero() {
		return Secret{}, errors.New("parse a secret: all of its digits are 0")
	}
	return s, nil
}

// Hex is the form in which a secret travels in an environment or a 0600 file: 64
// hexadecimal digits.
func (s Secret) Hex() string { return hex.EncodeToString(s[:]) }

// Derive makes another secret out of s, bound to the given words: different
// words, or the same text cut into words differently, give unrelated secrets.
// s cannot be worked out from what is derived from it.
func (s Secret) Derive(words ...string) Secret { return s.mac("derive", words...) }

// Equal compares two secrets in a time that does not depend on their bytes.
func (s Secret) Equal(other Secret) bool { return hmac.Equal(s[:], other[:]) }

// IsZero tells whether s was never set.
func (s Secret) IsZero() bool { return s.Equal(Secret{}) }

// String returns a placeholder.
func (s Secret) String() string { return redacted }

// GoString returns a placeholder.
func (s Secret) GoString() string { return redacted }

// Format prints a placeholder for every verb: %d or %x would otherwise show the bytes.
func (s Secret) Format(state fmt.State, _ rune) { io.WriteString(state, redacted) }

// LogValue returns a placeholder.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns a placeholder, which ParseSecret refuses.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// mac is HMAC-SHA256 over purpose and words, each preceded by its length, so that
// no two lists of words give the same input.
func (s Secret) mac(purpose string, words ...string) Secret {
	h := hmac.New(sha256.New, s[:])
	add := func(word string) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(word))))
		io.WriteString(h, word)
	}
	add(purpose)
	for _, word := range words {
		add(word)
	}
	return Secret(h.Sum(nil))
}
