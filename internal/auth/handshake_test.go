package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

var binding = Binding{Run: "mnist-1", Attempt: 2, Role: "store"}

// side is what one end of a handshake brings and gets.
type side struct {
	secret  Secret
	binding Binding
	hello   string

	peer []byte
	err  error
}

// meet runs a handshake over the two ends of a connection, closing each when its side is done, if that failed.
func meet(ctx context.Context, clientConn, serverConn net.Conn, client, server *side) {
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

func TestHandshake(t *testing.T) {
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
				meet(t.Context(), c, s, client, server)
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

// TestHandshakeLeavesTraffic sends right behind the last byte of the handshake.
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

func TestHandshakeRefuses(t *testing.T) {
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
			meet(t.Context(), c, s, client, server)
			if !errors.Is(client.err, ErrRefused) {
				t.Errorf("client: %v, want ErrRefused", client.err)
			}
			if !errors.Is(server.err, ErrUnproved) {
				t.Errorf("server: %v, want ErrUnproved", server.err)
			}
			if client.peer != nil || server.peer != nil {
				t.Errorf("the client has the hello %q, the server %q", client.peer, server.peer)
			}
			if same := bytes.Equal(client.binding.Fingerprint(), server.binding.Fingerprint()); same != (name == "secret") {
				t.Errorf("the bindings have the same fingerprint: %t", same)
			}
		})
	}
}

func TestHandshakeRefusesToBegin(t *testing.T) {
	c, _ := pipePair(t)
	for name, f := range map[string]func(context.Context, net.Conn, Secret, Binding, []byte) ([]byte, error){"client": Client, "server": Server} {
		if _, err := f(t.Context(), c, Secret{}, binding, nil); !errors.Is(err, ErrNoSecret) {
			t.Errorf("%s without a secret: %v", name, err)
		}
		if _, err := f(t.Context(), c, counting(), binding, make([]byte, MaxHello+1)); err == nil || !strings.Contains(err.Error(), "4097") {
			t.Errorf("%s with a long hello: %v", name, err)
		}
	}
}

func TestVersionMismatch(t *testing.T) {
	later := string(AppendPreface(nil, Version+1))
	check := func(t *testing.T, err error) {
		t.Helper()
		var v *VersionError
		if !errors.As(err, &v) || *v != (VersionError{Ours: Version, Theirs: Version + 1}) {
			t.Errorf("error %v, want a VersionError", err)
		}
		if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), fmt.Sprint("version ", Version)) ||
			!strings.Contains(err.Error(), fmt.Sprint("version ", Version+1)) {
			t.Errorf("error %q does not tell both versions", err)
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
			t.Errorf("the client was told %q", got)
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

func TestForeignPeer(t *testing.T) {
	for name, words := range map[string]string{
		"http":        "HTTP/1.1 400 Bad Request\r\n\r\n",
		"ssh":         "SSH-2.0-OpenSSH_9.2p1\r\n",
		"torch store": "\x03\x05\x00\x00\x00\x00\x00\x00\x00init/\x01\x00\x00\x00\x00\x00\x00\x00",
		"long hello":  string(AppendPreface(nil, Version)) + strings.Repeat("n", 32) + "\x10\x01",
	} {
		t.Run(name, func(t *testing.T) {
			for role, f := range map[string]func(context.Context, net.Conn, Secret, Binding, []byte) ([]byte, error){"client": Client, "server": Server} {
				conn := &script{in: strings.NewReader(words)}
				if _, err := f(t.Context(), conn, counting(), binding, nil); !errors.Is(err, ErrProtocol) {
					t.Errorf("%s: %v, want ErrProtocol", role, err)
				}
			}
		})
	}
}

// TestImpostor plays servers that do not know the secret to a client that does.
func TestImpostor(t *testing.T) {
	preface := string(AppendPreface(nil, Version))
	challenge := preface + strings.Repeat("n", 32) + "\x00\x00"
	clientProof := len(preface) + 32 + 2 // where it begins in what the client sends, after an empty hello
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
	meet(t.Context(), recorder, s, client, server)
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
