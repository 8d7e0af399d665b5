package secure

import (
	"crypto/ed25519"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
)

// relay is between a client and a server, and passes on what each sends, with changes.
type relay struct {
	toServer, toClient func(part []byte) []byte
	tasks              sync.WaitGroup
}

// between returns the connections of the client and of the server, each to the relay.
func (r *relay) between(t *testing.T) (client, server net.Conn) {
	client, near := tcpPair(t)
	far, server := tcpPair(t)
	pass := func(to, from net.Conn, change func([]byte) []byte) {
		defer to.(*net.TCPConn).CloseWrite()
		buf := make([]byte, 16<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				if _, err := to.Write(change(buf[:n])); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	r.tasks.Go(func() { pass(far, near, r.toServer) })
	r.tasks.Go(func() { pass(near, far, r.toClient) })
	t.Cleanup(func() { client.Close(); server.Close(); near.Close(); far.Close(); r.tasks.Wait() })
	return client, server
}

// TestRelayThatRewritesIsFound uses a relay that passes the handshake on unchanged, and changes one bit of what follows. No changed data is
// read.
func TestRelayThatRewritesIsFound(t *testing.T) {
	client, server := keys(t, secret, binding)
	for _, toServer := range []bool{true, false} {
		var armed atomic.Bool
		change := func(part []byte) []byte {
			if armed.Load() {
				part[len(part)-1] ^= 1
			}
			return part
		}
		r := &relay{toServer: change, toClient: change}
		dialled, accepted := r.between(t)
		o := open(t, client, dialled, server, accepted)
		if o.clientErr != nil || o.serverErr != nil {
			t.Fatalf("client: %v; server: %v", o.clientErr, o.serverErr)
		}
		armed.Store(true)
		from, to := o.client, o.server
		if !toServer {
			from, to = to, from
		}
		io.WriteString(from, "MASTER_PORT=61685")
		to.SetReadDeadline(time.Now().Add(testkit.Patience))
		got, err := io.ReadAll(to)
		var network net.Error
		if len(got) > 0 || err == nil || errors.As(err, &network) && network.Timeout() {
			t.Errorf("to the server %v: read %q, %v", toServer, got, err)
		}
	}
}

// TestRelayThatRewritesTheHandshakeIsFound changes one byte in each part of the handshake, at many positions. No connection results.
func TestRelayThatRewritesTheHandshakeIsFound(t *testing.T) {
	client, server := keys(t, secret, binding)
	for _, toServer := range []bool{true, false} {
		for at := 0; at < 400; at += 13 {
			var seen []byte
			longer := make(chan struct{})
			change := func(part []byte) []byte {
				before := len(seen)
				seen = append(seen, part...)
				if before <= at && at < len(seen) {
					part[at-before] ^= 0x40
					if isRecordLength(seen, toServer, at) {
						close(longer)
					}
				}
				return part
			}
			same := func(part []byte) []byte { return part }
			r := &relay{toServer: change, toClient: same}
			if !toServer {
				r = &relay{toServer: same, toClient: change}
			}
			dialled, accepted := r.between(t)
			over, limit := make(chan struct{}), time.NewTimer(testkit.Patience)
			var watch sync.WaitGroup
			watch.Go(func() {
				select {
				case <-over:
					return
				case <-longer: // a side waits for bytes that never come
				case <-limit.C:
					t.Errorf("byte %d, to the server %v: a side hangs", at, toServer)
				}
				dialled.Close()
				accepted.Close()
			})
			o := open(t, client, dialled, server, accepted)
			close(over)
			watch.Wait()
			// The digest, at 10 to 41, is a hint that no proof covers.
			if hint := !toServer && at >= 10 && at < 42; !hint && (o.clientErr == nil || o.serverErr == nil && toServer) {
				t.Errorf("byte %d, to the server %v: client %v; server: %v", at, toServer, o.clientErr, o.serverErr)
			}
		}
	}
}

// isRecordLength reports whether the byte at this position is part of the length of a TLS record (RFC 8446, 5.1). sent is everything that
// one side has sent until then.
func isRecordLength(sent []byte, toServer bool, at int) bool {
	begin := 10 // after "ddpbatch" and the version
	if !toServer {
		begin += 32 // and the digest
	}
	for begin+5 <= len(sent) && begin+5 <= at {
		begin += 5 + int(binary.BigEndian.Uint16(sent[begin+3:]))
	}
	return at == begin+3 || at == begin+4
}

// TestRelayWithItsOwnKeyIsRefused uses a relay that ends TLS on both sides with its own key.
func TestRelayWithItsOwnKeyIsRefused(t *testing.T) {
	client, server := keys(t, secret, binding)
	key := ed25519.NewKeyFromSeed([]byte("this is a relay's seed: 32 bytes"))
	own := tls.Certificate{Certificate: [][]byte{certificate(key.Public().(ed25519.PublicKey))}, PrivateKey: key}
	fake := func(config *tls.Config) *tls.Config {
		c := config.Clone()
		c.Certificates, c.VerifyConnection = []tls.Certificate{own}, nil
		return c
	}
	dialled, accepted := tcpPair(t)
	o := open(t, client, dialled, &Server{identity{fake(server.config), server.bindingDigest}}, accepted)
	if !errors.Is(o.clientErr, auth.ErrUnproved) || o.serverErr == nil {
		t.Errorf("to the client: client %v, want ErrUnproved; relay: %v", o.clientErr, o.serverErr)
	}
	dialled, accepted = tcpPair(t)
	o = open(t, &Client{identity{fake(client.config), client.bindingDigest}}, dialled, server, accepted)
	if !errors.Is(o.serverErr, auth.ErrUnproved) || o.clientErr == nil {
		t.Errorf("to the server: server %v, want ErrUnproved; relay: %v", o.serverErr, o.clientErr)
	}
}
