package secure

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"testing"
)

// TestCertificate: crypto/x509 reads the key out of a certificate.
func TestCertificate(t *testing.T) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	got, err := x509.ParseCertificate(certificate(key))
	if err != nil {
		t.Fatal(err)
	}
	if theirs, ok := got.PublicKey.(ed25519.PublicKey); !ok || !theirs.Equal(key) || got.SignatureAlgorithm != x509.PureEd25519 {
		t.Errorf("key %v, algorithm of the signature %v; want %v, %v", got.PublicKey, got.SignatureAlgorithm, key, x509.PureEd25519)
	}
}
