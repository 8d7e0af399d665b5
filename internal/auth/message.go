package auth

import (
	"encoding/binary"
	"fmt"
	"io"
)

const magic = "ddpbatch"

// The server's answer to a client's proof.
const (
	refused  = 0
	accepted = 1
)

// AppendPreface appends the bytes that both sides of every connection send first: a magic word and a version. Their form never changes, so
// that sides of different versions can tell.
func AppendPreface(buf []byte, version uint16) []byte {
	return binary.BigEndian.AppendUint16(append(buf, magic...), version)
}

// ReadPreface returns the version that the peer speaks.
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

func readVerdict(r io.Reader) error {
	var verdict [1]byte
	if _, err := io.ReadFull(r, verdict[:]); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	switch verdict[0] {
	case accepted:
		return nil
	case refused:
		return ErrRefused
	}
	return fmt.Errorf("%w: it answered a proof with byte %d", ErrProtocol, verdict[0])
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
