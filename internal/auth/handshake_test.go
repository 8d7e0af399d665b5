package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

var binding = Binding{Run: "mnist-1", Attempt: 2, Role: "store"}

// side is what one end of a handshake sends and gets.
type side struct {
	secret  Secret
	binding Binding
	hello   string

	peer []byte
	err  error
}

// handshakeBoth runs a handshake over the two ends of a connection. If a side fails, handshakeBoth closes its end.
func handshakeBoth(ctx context.Context, clientConn, serverConn net.Conn, client, server *side) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.peer, server.err = Server(ctx, serverConn, server.secret, server.binding, []byte(server.hello))
		if server.err != nil {
			serverConn.Close()
		}
	}()
	client.peer, client.err = Client(ctx, clientConn, client.secret, client.binding, []byte(client.hello))
	if client.err != nil {
		clientConn.Close()
	}
	<-done
}

// tcpPair returns the two ends of a loopback connection.
func tcpPair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

func pipePair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	client, server = net.Pipe()
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func TestHandshakeExchangesHellos(t *testing.T) {
	for name, hellos := range map[string][2]string{
		"short":   {"rank 5", "node0"},
		"empty":   {"", ""},
		"longest": {strings.Repeat("c", MaxHello), strings.Repeat("s", MaxHello)},
		"binary":  {"\x00\xff", "\n"},
	} {
		for network, pair := range map[string]func(*testing.T) (net.Conn, net.Conn){"pipe": pipePair, "tcp": tcpPair} {
			t.Run(name+" over "+network, func(t *testing.T) {
				c, s := pair(t)
				client := &side{secret: counting(), binding: binding, hello: hellos[0]}
				server := &side{secret: counting(), binding: binding, hello: hellos[1]}
				handshakeBoth(t.Context(), c, s, client, server)
				if client.err != nil || server.err != nil {
					t.Fatalf("client: %v; server: %v", client.err, server.err)
				}
				if string(client.peer) != server.hello || string(server.peer) != client.hello {
					t.Errorf("hellos came as %.20q and %.20q", client.peer, server.peer)
				}
			})
		}
	}
}

// TestHandshakeLeavesTraffic sends data right after the last byte of the handshake, and checks that the handshake does not consume it.
func TestHandshakeLeavesTraffic(t *testing.T) {
	c, s := tcpPair(t)
	go func() {
		if _, err := Server(t.Context(), s, counting(), binding, []byte("node0")); err == nil {
			io.WriteString(s, "first words")
		}
		s.Close()
	}()
	if _, err := Client(t.Context(), c, counting(), binding, nil); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); string(rest) != "first words" || err != nil {
		t.Errorf("after the handshake came %q, %v", rest, err)
	}
}

func TestHandshakeRefusesSidesThatDiffer(t *testing.T) {
	for name, change := range map[string]func(*side){
		"secret":        func(s *side) { s.secret[31] ^= 1 },
		"run":           func(s *side) { s.binding.Run = "mnist-2" },
		"attempt":       func(s *side) { s.binding.Attempt++ },
		"role":          func(s *side) { s.binding.Role = "transport" },
		"cut elsewhere": func(s *side) { s.binding.Run, s.binding.Role = "mnist-12store", "" },
	} {
		t.Run(name, func(t *testing.T) {
			c, s := tcpPair(t)
			client := &side{secret: counting(), binding: binding, hello: "c"}
			server := &side{secret: counting(), binding: binding, hello: "s"}
			change(client)
			handshakeBoth(t.Context(), c, s, client, server)
			if !errors.Is(client.err, ErrRefused) {
				t.Errorf("client: %v, want ErrRefused", client.err)
			}
			if !errors.Is(server.err, ErrUnproved) {
				t.Errorf("server: %v, want ErrUnproved", server.err)
			}
			if client.peer != nil || server.peer != nil {
				t.Errorf("the client has the hello %q, the server %q", client.peer, server.peer)
			}
			if same := bytes.Equal(client.binding.Digest(), server.binding.Digest()); same != (name == "secret") {
				t.Errorf("the bindings have the same digest: %t", same)
			}
		})
	}
}

func TestHandshakeDoesNotBeginWithoutAKey(t *testing.T) {
	c, _ := pipePair(t)
	for name, f := range map[string]func(context.Context, net.Conn, Secret, Binding, []byte) ([]byte,
		error){"client": Client, "server": Server} {
		if _, err := f(t.Context(), c, Secret{}, binding, nil); !errors.Is(err, ErrNoSecret) {
			t.Errorf("%s without a secret: %v", name, err)
		}
		if _, err := f(t.Context(), c, counting(), binding, make([]byte, MaxHello+1)); err == nil ||
			!strings.Contains(err.Error(), "4097") {
			t.Errorf("%s with a long hello: %v", name, err)
		}
	}
}

func TestVersionMismatchIsReported(t *testing.T) {
	later := string(AppendPreface(nil, Version+1))
	check := func(t *testing.T, err error) {
		t.Helper()
		var v *VersionError
		if !errors.As(err, &v) || *v != (VersionError{Ours: Version, Theirs: Version + 1}) {
			t.Errorf("error %v, want a VersionError", err)
		}
		if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), fmt.Sprint("version ", Version)) ||
			!strings.Contains(err.Error(), fmt.Sprint("version ", Version+1)) {
			t.Errorf("error %q does not name both versions", err)
		}
	}
	t.Run("client is later", func(t *testing.T) {
		c, s := pipePair(t)
		reply := make(chan string)
		go func() {
			io.WriteString(c, later)
			got, _ := io.ReadAll(c)
			reply <- string(got)
		}()
		_, err := Server(t.Context(), s, counting(), binding, []byte("private to this version"))
		s.Close()
		check(t, err)
		if got := <-reply; got != string(AppendPreface(nil, Version)) {
			t.Errorf("the client got %q", got)
		}
	})
	t.Run("server is later", func(t *testing.T) {
		c, s := pipePair(t)
		go func() {
			io.CopyN(io.Discard, s, int64(len(later)))
			io.WriteString(s, later)
		}()
		_, err := Client(t.Context(), c, counting(), binding, nil)
		check(t, err)
	})
}

func TestForeignPeerIsRefused(t *testing.T) {
	for name, words := range map[string]string{
		"http":        "HTTP/1.1 400 Bad Request\r\n\r\n",
		"ssh":         "SSH-2.0-OpenSSH_9.2p1\r\n",
		"torch store": "\x03\x05\x00\x00\x00\x00\x00\x00\x00init/\x01\x00\x00\x00\x00\x00\x00\x00",
		"long hello":  string(AppendPreface(nil, Version)) + strings.Repeat("n", 32) + "\x10\x01",
	} {
		t.Run(name, func(t *testing.T) {
			for role, f := range map[string]func(context.Context, net.Conn, Secret, Binding, []byte) ([]byte,
				error){"client": Client, "server": Server} {
				conn := &script{in: strings.NewReader(words)}
				if _, err := f(t.Context(), conn, counting(), binding, nil); !errors.Is(err, ErrProtocol) {
					t.Errorf("%s: %v, want ErrProtocol", role, err)
				}
			}
		})
	}
}

// TestImpostorIsRejected plays servers that do not know the secret to a client that does.
func TestImpostorIsRejected(t *testing.T) {
	preface := string(AppendPreface(nil, Version))
	challenge := preface + strings.Repeat("n", 32) + "\x00\x00"
	clientProof := len(preface) + 32 + 2 // offset of the proof in what the client sends, after an empty hello
	for name, c := range map[string]struct {
		answer func(sent []byte) []byte
		want   error
	}{
		"accepts and invents":  {func([]byte) []byte { return append([]byte{accepted}, make([]byte, 32)...) }, ErrUnproved},
		"reflects the proof":   {func(sent []byte) []byte { return append([]byte{accepted}, sent[clientProof:]...) }, ErrUnproved},
		"answers out of range": {func([]byte) []byte { return []byte{7} }, ErrProtocol},
		"only accepts":         {func([]byte) []byte { return []byte{accepted} }, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			conn := &script{}
			conn.in = io.MultiReader(strings.NewReader(challenge), &later{func() []byte { return c.answer(conn.out.Bytes()) }, nil})
			if _, err := Client(t.Context(), conn, counting(), binding, nil); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if got := conn.out.Len(); got != clientProof+32 {
				t.Errorf("the client sent %d bytes", got)
			}
		})
	}
}

func TestReplayIsRefused(t *testing.T) {
	c, s := pipePair(t)
	recorder := &recording{Conn: c}
	client := &side{secret: counting(), binding: binding, hello: "c"}
	server := &side{secret: counting(), binding: binding, hello: "s"}
	handshakeBoth(t.Context(), recorder, s, client, server)
	if client.err != nil || server.err != nil {
		t.Fatalf("client: %v; server: %v", client.err, server.err)
	}

	t.Run("client's words to another server", func(t *testing.T) {
		conn := &script{in: bytes.NewReader(recorder.sent.Bytes())}
		if _, err := Server(t.Context(), conn, counting(), binding, []byte("s")); !errors.Is(err, ErrUnproved) {
			t.Errorf("error %v, want ErrUnproved", err)
		}
		if out := conn.out.Bytes(); out[len(out)-1] != refused || len(out) != len(magic)+2+32+2+1+1 {
			t.Errorf("the server sent %d bytes, the last %d", len(out), out[len(out)-1])
		}
	})
	t.Run("server's words to another client", func(t *testing.T) {
		conn := &script{in: bytes.NewReader(recorder.received.Bytes())}
		if _, err := Client(t.Context(), conn, counting(), binding, []byte("c")); !errors.Is(err, ErrUnproved) {
			t.Errorf("error %v, want ErrUnproved", err)
		}
	})
	t.Run("cut at every byte", func(t *testing.T) {
		for n := range recorder.sent.Len() {
			conn := &script{in: bytes.NewReader(recorder.sent.Bytes()[:n])}
			if _, err := Server(t.Context(), conn, counting(), binding, []byte("s")); !cut(err) {
				t.Errorf("server, after %d bytes: %v", n, err)
			}
		}
		for n := range recorder.received.Len() {
			conn := &script{in: bytes.NewReader(recorder.received.Bytes()[:n])}
			if _, err := Client(t.Context(), conn, counting(), binding, []byte("c")); !cut(err) {
				t.Errorf("client, after %d bytes: %v", n, err)
			}
		}
	})
}

func cut(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// seeds adds the beginnings of handshakes, as each side receives them.
func seeds(f *testing.F) {
	hello := appendChallenge(AppendPreface(nil, Version), nonce{1, 2, 3}, []byte("node0"))
	f.Add([]byte(nil))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte(magic + "\x00\x02"))
	f.Add(hello)
	f.Add(append(hello, refused))
	f.Add(append(hello, append([]byte{accepted}, make([]byte, 32)...)...))
	f.Add(append(hello, make([]byte, 32)...))
	f.Add([]byte(string(AppendPreface(nil, Version)) + strings.Repeat("n", 32) + "\xff\xff"))
}

// FuzzServer sends arbitrary bytes to a server. None of them prove that the sender knows the secret.
func FuzzServer(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, words []byte) {
		conn := &script{in: bytes.NewReader(words)}
		if _, err := Server(t.Context(), conn, counting(), binding, []byte("s")); err == nil {
			t.Fatal("the server accepted a client without the secret")
		}
		if most := len(magic) + 2 + 32 + 2 + 1 + 1; conn.out.Len() > most {
			t.Errorf("the server sent a stranger %d bytes", conn.out.Len())
		}
	})
}

// FuzzClient sends arbitrary bytes to a client.
func FuzzClient(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, words []byte) {
		conn := &script{in: bytes.NewReader(words)}
		if _, err := Client(t.Context(), conn, counting(), binding, []byte("c")); err == nil {
			t.Fatal("the client accepted a server without the secret")
		}
	})
}

// TestSlowPeerIsCutOff runs both sides against a peer that sends one byte a second forever, and against one that sends nothing.
func TestSlowPeerIsCutOff(t *testing.T) {
	background := func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} }
	for name, c := range map[string]struct {
		context func(context.Context) (context.Context, context.CancelFunc)
		after   time.Duration
		want    error
	}{
		"no deadline": {background, Timeout, os.ErrDeadlineExceeded},
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 3*time.Second)
		}, 3 * time.Second, context.DeadlineExceeded},
		"late deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Minute)
		}, time.Minute, context.DeadlineExceeded},
		"cancelled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(2*time.Second, cancel)
			return ctx, cancel
		}, 2 * time.Second, context.Canceled},
		"cancelled before": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}, 0, context.Canceled},
	} {
		for role, f := range map[string]func(context.Context, net.Conn, Secret, Binding, []byte) ([]byte,
			error){"client": Client, "server": Server} {
			for pace, drip := range map[string]func(net.Conn){"silent": func(net.Conn) {}, "dripping": dripHandshake} {
				t.Run(name+", "+role+", "+pace, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						near, far := net.Pipe()
						var peer sync.WaitGroup
						peer.Go(func() { io.Copy(io.Discard, far) })
						peer.Go(func() { drip(far) })
						ctx, cancel := c.context(t.Context())
						defer cancel()
						begin := time.Now()
						_, err := f(ctx, near, counting(), binding, nil)
						if !errors.Is(err, c.want) {
							t.Errorf("error %v, want %v", err, c.want)
						}
						if took := time.Since(begin); took != c.after {
							t.Errorf("took %v, want %v", took, c.after)
						}
						near.Close()
						far.Close()
						peer.Wait()
					})
				})
			}
		}
	}
}

// dripHandshake sends the beginning of a handshake, one byte a second.
func dripHandshake(conn net.Conn) {
	words := appendChallenge(AppendPreface(nil, Version), nonce{}, make([]byte, 100))
	for _, b := range words {
		if _, err := conn.Write([]byte{b}); err != nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// TestDeadlineIsCleared uses the connection long after the handshake's deadline.
func TestDeadlineIsCleared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := net.Pipe()
		defer c.Close()
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		client := &side{secret: counting(), binding: binding}
		server := &side{secret: counting(), binding: binding}
		handshakeBoth(ctx, c, s, client, server)
		if client.err != nil || server.err != nil {
			t.Fatalf("client: %v; server: %v", client.err, server.err)
		}
		time.Sleep(time.Hour)
		go io.WriteString(c, "x")
		if _, err := s.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
}

// script is a connection that reads from in and keeps what is written to it.
type script struct {
	net.Conn
	in  io.Reader
	out bytes.Buffer
}

func (s *script) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *script) Write(p []byte) (int, error) { return s.out.Write(p) }
func (s *script) SetDeadline(time.Time) error { return nil }

// later is a reader that makes its contents at the first read.
type later struct {
	make func() []byte
	r    io.Reader
}

func (l *later) Read(p []byte) (int, error) {
	if l.r == nil {
		l.r = bytes.NewReader(l.make())
	}
	return l.r.Read(p)
}

// recording keeps what is sent and received over a connection.
type recording struct {
	net.Conn
	sent, received bytes.Buffer
}

func (r *recording) Write(p []byte) (int, error) {
	r.sent.Write(p)
	return r.Conn.Write(p)
}

func (r *recording) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.received.Write(p[:n])
	return n, err
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
