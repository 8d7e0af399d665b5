package secure

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
	"time"

	"ddpbatch/internal/auth"
)

// Client opens connections as the side that dialled. It is made once, and may be used by several goroutines.
type Client struct{ identity }

// Server opens connections as the side that accepted, like Client.
type Server struct{ identity }

// identity is one side of the connections of one binding.
type identity struct {
	config      *tls.Config
	fingerprint []byte // of the binding
}

// The sides of a connection, as they are in the derivation of their keys.
const (
	clientSide = "client"
	serverSide = "server"
)

// NewClient makes the keys of the side that dials.
func NewClient(s auth.Secret, b auth.Binding) (*Client, error) {
	id, err := newIdentity(s, b, clientSide, serverSide)
	return &Client{id}, err
}

// NewServer makes the keys of the side that accepts.
func NewServer(s auth.Secret, b auth.Binding) (*Server, error) {
	id, err := newIdentity(s, b, serverSide, clientSide)
	return &Server{id}, err
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
	certificate, err := selfSigned(key)
	if err != nil {
		return identity{}, err
	}
	fingerprint := b.Fingerprint()
	protocol := "ddpbatch/" + hex.EncodeToString(fingerprint) // ALPN allows 255 bytes, and a run's id may be longer
	return identity{fingerprint: fingerprint, config: &tls.Config{
		MinVersion:       tls.VersionTLS13,
		CurvePreferences: []tls.CurveID{tls.X25519},
		Certificates:     []tls.Certificate{certificate},
		ClientAuth:       tls.RequireAnyClientCert,
		NextProtos:       []string{protocol},
		// There is no authority whose signature could be looked for: VerifyConnection compares the key itself.
		InsecureSkipVerify:     true,
		VerifyConnection:       pinned(peer.Public().(ed25519.PublicKey), protocol),
		GetConfigForClient:     bound(protocol),
		SessionTicketsDisabled: true,
	}}, nil
}

// keyOf is the key pair of one side. Whoever knows the secret can make both.
func keyOf(s auth.Secret, side string) (ed25519.PrivateKey, error) {
	seed, err := hkdf.Key(sha256.New, s[:], nil, "ddpbatch TLS key of the "+side, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("make the keys of this run: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// selfSigned puts a key into the form that TLS has for it.
func selfSigned(key ed25519.PrivateKey) (tls.Certificate, error) {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0)} // nobody looks at them
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make the keys of this run: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// pinned accepts a connection whose other end has signed with the given key, for the same binding.
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

// bound has a server refuse a client of another binding before it computes anything.
func bound(protocol string) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if !slices.Contains(hello.SupportedProtos, protocol) {
			return nil, auth.ErrUnproved
		}
		return nil, nil // as configured
	}
}
