package secure

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	secret  = auth.Secret{1, 2, 3}
	binding = auth.Binding{Run: "run-7", Attempt: 3, Role: "store"}
)

// keys returns the two sides of one binding.
func keys(t testing.TB, s auth.Secret, b auth.Binding) (*Client, *Server) {
	t.Helper()
	client, err := NewClient(s, b)
	if err != nil {
		t.Fatal(err)
	}
	server, err := NewServer(s, b)
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

// tcpPair returns the two ends of a connection. With a pipe, each side would wait for the other to read its alert.
func tcpPair(t testing.TB) (dialled, accepted net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if dialled, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	return dialled, accepted
}

// outcome is the result on the two sides of a connection.
type outcome struct {
	client, server       net.Conn
	clientErr, serverErr error
	name                 string
}

// open runs both sides, each on its own connection, and closes the connection of a side that failed.
func open(t testing.TB, client *Client, dialled net.Conn, server *Server, accepted net.Conn) (o outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	var sides sync.WaitGroup
	sides.Go(func() {
		if o.client, o.clientErr = client.Open(ctx, dialled, "rank 5"); o.clientErr != nil {
			dialled.Close()
		}
	})
	sides.Go(func() {
		var name []byte
		if o.server, name, o.serverErr = server.Open(ctx, accepted); o.serverErr != nil {
			accepted.Close()
		}
		o.name = string(name)
	})
	sides.Wait()
	return o
}

func TestOpenSendsNothingInTheClear(t *testing.T) {
	client, server := keys(t, secret, binding)
	dialled, accepted := tcpPair(t)
	wire := &recorder{Conn: dialled}
	o := open(t, client, wire, server, accepted)
	if o.clientErr != nil || o.serverErr != nil || o.name != "rank 5" {
		t.Fatalf("client: %v; server: %v; name %q", o.clientErr, o.serverErr, o.name)
	}
	defer o.client.Close()
	defer o.server.Close()
	for from, to := range map[net.Conn]net.Conn{o.client: o.server, o.server: o.client} {
		go io.WriteString(from, "the plan")
		got := make([]byte, 8)
		if _, err := io.ReadFull(to, got); err != nil || string(got) != "the plan" {
			t.Errorf("got %q, %v", got, err)
		}
	}
	for _, word := range []string{"the plan", "rank 5", "run-7"} {
		if bytes.Contains(wire.sent.Bytes(), []byte(word)) {
			t.Errorf("%q was sent in the clear", word)
		}
	}
	if state := o.client.(*tls.Conn).ConnectionState(); state.Version != tls.VersionTLS13 || state.DidResume {
		t.Errorf("version %x, resumed %v", state.Version, state.DidResume)
	}
}

// recorder keeps what is written to a connection.
type recorder struct {
	net.Conn
	sent bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.sent.Write(p)
	return r.Conn.Write(p)
}

// TestOpenRefusesSidesThatDiffer connects sides that do not belong together. From what the server sends about itself, the client can
// distinguish another secret from another run.
func TestOpenRefusesSidesThatDiffer(t *testing.T) {
	for name, c := range map[string]struct {
		secret  auth.Secret
		binding auth.Binding
		want    error // the error of the client
	}{
		"another secret":  {auth.Secret{1, 2, 4}, binding, auth.ErrUnproved},
		"another run":     {secret, auth.Binding{Run: "run-8", Attempt: 3, Role: "store"}, auth.ErrRefused},
		"another attempt": {secret, auth.Binding{Run: "run-7", Attempt: 2, Role: "store"}, auth.ErrRefused},
		"another role":    {secret, auth.Binding{Run: "run-7", Attempt: 3, Role: "agents"}, auth.ErrRefused},
		"all of it":       {auth.Secret{9}, auth.Binding{Run: "run-8", Attempt: 1, Role: "agents"}, auth.ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := keys(t, c.secret, c.binding)
			_, server := keys(t, secret, binding)
			dialled, accepted := tcpPair(t)
			o := open(t, client, dialled, server, accepted)
			if !errors.Is(o.clientErr, c.want) || !errors.Is(o.serverErr, auth.ErrUnproved) {
				t.Errorf("client: %v, want %v; server: %v, want ErrUnproved", o.clientErr, c.want, o.serverErr)
			}
		})
	}
}

// TestOpenTakesALongRunID uses a run whose id is longer than ALPN allows.
func TestOpenTakesALongRunID(t *testing.T) {
	long := binding
	long.Run = strings.Repeat("r", 1000)
	client, server := keys(t, secret, long)
	dialled, accepted := tcpPair(t)
	if o := open(t, client, dialled, server, accepted); o.clientErr != nil || o.serverErr != nil {
		t.Errorf("client: %v; server: %v", o.clientErr, o.serverErr)
	}
}

func TestNoSideIsMadeWithoutSecret(t *testing.T) {
	if _, err := NewClient(auth.Secret{}, binding); !errors.Is(err, auth.ErrNoSecret) {
		t.Errorf("client: %v", err)
	}
	if _, err := NewServer(auth.Secret{}, binding); !errors.Is(err, auth.ErrNoSecret) {
		t.Errorf("server: %v", err)
	}
}

// TestStrangerWithTLSIsRefused uses clients that know everything except the secret: one without a certificate, one with its own, and one
// with the server's.
func TestStrangerWithTLSIsRefused(t *testing.T) {
	client, server := keys(t, secret, binding)
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	stranger := tls.Certificate{Certificate: [][]byte{certificate(key.Public().(ed25519.PublicKey))}, PrivateKey: key}
	for name, certificates := range map[string][]tls.Certificate{
		"no certificate": nil, "its own key": {stranger}, "the server's own key": server.config.Certificates,
	} {
		config := client.config.Clone()
		config.VerifyConnection, config.Certificates = nil, certificates
		dialled, accepted := tcpPair(t)
		o := open(t, &Client{identity{config, client.bindingDigest}}, dialled, server, accepted)
		if o.serverErr == nil || o.server != nil || o.clientErr == nil {
			t.Errorf("%s: server: %v; client: %v", name, o.serverErr, o.clientErr)
		}
	}
}

// TestAnotherProtocolIsRefused makes the server leave out ALPN, as a program would that has the keys but not the binding.
func TestAnotherProtocolIsRefused(t *testing.T) {
	client, server := keys(t, secret, binding)
	config := server.config.Clone()
	config.NextProtos, config.GetConfigForClient, config.VerifyConnection = nil, nil, nil
	dialled, accepted := tcpPair(t)
	o := open(t, client, dialled, &Server{identity{config, server.bindingDigest}}, accepted)
	if !errors.Is(o.clientErr, auth.ErrUnproved) {
		t.Errorf("client: %v", o.clientErr)
	}
}

// TestReflectionIsRefused sends a client its own messages back, and connects two clients, and two servers, to each other.
func TestReflectionIsRefused(t *testing.T) {
	client, server := keys(t, secret, binding)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	t.Run("to the client", func(t *testing.T) {
		dialled, accepted := tcpPair(t)
		go func() {
			digest := append(auth.AppendPreface(nil, auth.Version), client.bindingDigest...)
			io.CopyN(io.Discard, accepted, int64(len(auth.AppendPreface(nil, auth.Version))))
			accepted.Write(digest)
			io.Copy(accepted, accepted)
			accepted.Close()
		}()
		_, err := client.Open(ctx, dialled, "rank 5")
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		dialled.Close()
	})
	// A TLS client whose peer also has the client's keys. This is reflection by an attacker who can turn one side's messages into the
	// other's.
	t.Run("the client's own key as the server's", func(t *testing.T) {
		config := server.config.Clone()
		config.Certificates, config.VerifyConnection = client.config.Certificates, nil
		dialled, accepted := tcpPair(t)
		o := open(t, client, dialled, &Server{identity{config, server.bindingDigest}}, accepted)
		if !errors.Is(o.clientErr, auth.ErrUnproved) {
			t.Errorf("error %v, want ErrUnproved", o.clientErr)
		}
	})
}

func TestVersionMismatchIsReported(t *testing.T) {
	client, server := keys(t, secret, binding)
	later := auth.AppendPreface(nil, auth.Version+1)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	check := func(name string, err error) {
		var v *auth.VersionError
		if !errors.As(err, &v) || *v != (auth.VersionError{Ours: auth.Version, Theirs: auth.Version + 1}) ||
			!strings.Contains(err.Error(), "run the same build on every node") {
			t.Errorf("%s: error %v, want a VersionError", name, err)
		}
	}
	dialled, accepted := tcpPair(t)
	accepted.Write(later)
	_, err := client.Open(ctx, dialled, "rank 5")
	check("client", err)

	dialled, accepted = tcpPair(t)
	dialled.Write(later)
	_, _, err = server.Open(ctx, accepted)
	check("server", err)
	accepted.Close()
	if got, err := io.ReadAll(dialled); err != nil || !bytes.Equal(got, auth.AppendPreface(nil, auth.Version)) {
		t.Errorf("the client was told %q, %v", got, err)
	}
}

// TestForeignPeersAreRefused uses peers that do not speak this protocol.
func TestForeignPeersAreRefused(t *testing.T) {
	client, server := keys(t, secret, binding)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	preface := string(auth.AppendPreface(nil, auth.Version))
	digest := string(client.bindingDigest) // only the server sends it
	for name, said := range map[string]struct{ before, then string }{
		"http":          {"", "HTTP/1.1 400 Bad Request\r\n\r\n"},
		"torch store":   {"", "\x03\x05\x00\x00\x00\x00\x00\x00\x00init/\x01\x00\x00\x00\x00\x00\x00\x00"},
		"then rubbish":  {preface, strings.Repeat("rubbish", 100)},
		"then no TLS 3": {preface, "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"},
	} {
		words := said.before + said.then
		dialled, accepted := tcpPair(t)
		if said.before != "" {
			io.WriteString(accepted, said.before+digest+said.then)
		} else {
			io.WriteString(accepted, words)
		}
		if _, err := client.Open(ctx, dialled, ""); !errors.Is(err, auth.ErrProtocol) {
			t.Errorf("%s: client: %v, want ErrProtocol", name, err)
		}
		dialled, accepted = tcpPair(t)
		io.WriteString(dialled, words)
		if _, _, err := server.Open(ctx, accepted); !errors.Is(err, auth.ErrProtocol) {
			t.Errorf("%s: server: %v, want ErrProtocol", name, err)
		}
	}
}

// TestSilenceEndsInTime uses peers that send nothing, or stop within the handshake. The other side gives up when its time is over.
func TestSilenceEndsInTime(t *testing.T) {
	client, server := keys(t, secret, binding)
	preface := string(auth.AppendPreface(nil, auth.Version))
	for name, words := range map[string]string{"silent": "", "half": preface[:3], "in TLS": preface} {
		dialled, accepted := tcpPair(t)
		io.WriteString(accepted, words)
		if words == preface {
			accepted.Write(client.bindingDigest) // only the server sends it
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := client.Open(ctx, dialled, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: client: %v", name, err)
		}
		cancel()
		dialled, accepted = tcpPair(t)
		io.WriteString(dialled, words)
		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, _, err := server.Open(ctx, accepted); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: server: %v", name, err)
		}
		cancel()
	}
}

// TestDeadlineIsCleared uses a connection after the deadline of its handshake.
func TestDeadlineIsCleared(t *testing.T) {
	client, server := keys(t, secret, binding)
	dialled, accepted := tcpPair(t)
	o := open(t, client, dialled, server, accepted) // its context has ended
	if o.clientErr != nil || o.serverErr != nil {
		t.Fatalf("client: %v; server: %v", o.clientErr, o.serverErr)
	}
	go io.WriteString(o.client, "x")
	if _, err := o.server.Read(make([]byte, 1)); err != nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// BenchmarkOpen measures both sides of one connection.
func BenchmarkOpen(b *testing.B) {
	client, server := keys(b, secret, binding)
	for b.Loop() {
		dialled, accepted := tcpPair(b)
		if o := open(b, client, dialled, server, accepted); o.clientErr != nil || o.serverErr != nil {
			b.Fatal(o.clientErr, o.serverErr)
		}
		dialled.Close()
		accepted.Close()
	}
}

// BenchmarkKeys measures what each process does once.
func BenchmarkKeys(b *testing.B) {
	for b.Loop() {
		if _, err := NewClient(secret, binding); err != nil {
			b.Fatal(err)
		}
	}
}

// TestCertificateHoldsTheKey: crypto/x509 reads the key out of a certificate.
func TestCertificateHoldsTheKey(t *testing.T) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	got, err := x509.ParseCertificate(certificate(key))
	if err != nil {
		t.Fatal(err)
	}
	if theirs, ok := got.PublicKey.(ed25519.PublicKey); !ok || !theirs.Equal(key) || got.SignatureAlgorithm != x509.PureEd25519 {
		t.Errorf("key %v, algorithm of the signature %v; want %v, %v", got.PublicKey, got.SignatureAlgorithm, key, x509.PureEd25519)
	}
}
