package secure

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"slices"

	"ddpbatch/internal/auth"
)

// Client opens connections as the side that dialed. It may be used by several goroutines.
type Client struct{ identity }

// Server opens connections as the side that accepted. It may be used by several goroutines.
type Server struct{ identity }

// identity is one side of the connections of one binding.
type identity struct {
	config        *tls.Config
	bindingDigest []byte
}

// The labels of the two sides in the derivation of their keys.
const (
	clientSide = "client"
	serverSide = "server"
)

// NewClient creates the keys of the side that dials.
func NewClient(s auth.Secret, b auth.Binding) (*Client, error) {
	id, err := newIdentity(s, b, clientSide, serverSide)
	if err != nil {
		return nil, err
	}
	return &Client{id}, nil
}

// NewServer creates the keys of the side that accepts.
func NewServer(s auth.Secret, b auth.Binding) (*Server, error) {
	id, err := newIdentity(s, b, serverSide, clientSide)
	if err != nil {
		return nil, err
	}
	return &Server{id}, nil
}

func newIdentity(s auth.Secret, b auth.Binding, own, other string) (identity, error) {
	if s.IsZero() {
		return identity{}, fmt.Errorf("make the keys of this run: %w", auth.ErrNoSecret)
	}
	key, err := keyOf(s, own)
	if err != nil {
		return identity{}, err
	}
	peer, err := keyOf(s, other)
	if err != nil {
		return identity{}, err
	}
	digest := b.Digest()
	protocol := "ddpbatch/" + hex.EncodeToString(digest) // ALPN allows 255 bytes, and a run's ID may be longer
	return identity{bindingDigest: digest, config: &tls.Config{
		MinVersion:       tls.VersionTLS13,
		CurvePreferences: []tls.CurveID{tls.X25519},
		Certificates:     []tls.Certificate{{Certificate: [][]byte{certificate(key.Public().(ed25519.PublicKey))}, PrivateKey: key}},
		ClientAuth:       tls.RequireAnyClientCert,
		NextProtos:       []string{protocol},
		// There is no certificate authority to check: VerifyConnection compares the key itself.
		InsecureSkipVerify:     true,
		VerifyConnection:       pinned(peer.Public().(ed25519.PublicKey), protocol),
		GetConfigForClient:     bound(protocol),
		SessionTicketsDisabled: true,
	}}, nil
}

// keyOf returns the key pair of one side. Both sides know the secret, and so can derive both pairs.
func keyOf(s auth.Secret, side string) (ed25519.PrivateKey, error) {
	seed, err := hkdf.Key(sha256.New, s[:], nil, "ddpbatch TLS key of the "+side, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("make the keys of this run: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// certificate encodes a public key in the form that TLS requires (RFC 5280, section 4.1; RFC 8410): version 1, without names and without a
// signature, because the other side checks only the key. crypto/x509 would create and check a signature, which takes 2 ms.
func certificate(key ed25519.PublicKey) []byte {
	const ed25519ID = "\x30\x05\x06\x03\x2b\x65\x70" // 1.3.101.112
	return slices.Concat(
		[]byte("\x30\x81\xa6"+
			"\x30\x5a"+
			"\x02\x01\x01"+ed25519ID+"\x30\x00"+ // serial number, signature algorithm, issuer
			"\x30\x1e\x17\x0d700101000000Z\x17\x0d491231235959Z"+"\x30\x00"+ // validity, subject
			"\x30\x2a"+ed25519ID+"\x03\x21\x00"), key,
		[]byte(ed25519ID+"\x03\x41\x00"), make([]byte, ed25519.SignatureSize))
}

// pinned accepts a connection if the other side has signed with the given key, for the same binding.
func pinned(key ed25519.PublicKey, protocol string) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return auth.ErrUnproved
		}
		theirs, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
		if !ok || !bytes.Equal(theirs, key) || state.NegotiatedProtocol != protocol {
			return auth.ErrUnproved
		}
		return nil
	}
}

// bound makes a server refuse a client of another binding before it computes anything.
func bound(protocol string) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if !slices.Contains(hello.SupportedProtos, protocol) {
			return nil, auth.ErrUnproved
		}
		return nil, nil // use the given configuration
	}
}
