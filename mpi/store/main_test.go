package store

import (
	"context"
	"net"
	"testing"

	"go.uber.org/goleak"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	secret  = auth.Secret{1, 2, 3}
	binding = auth.Binding{Run: "test", Attempt: 1, Role: "store"}
)

// listen returns a listener on a free loopback port.
func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve runs a server on loopback for the duration of the test.
func serve(t testing.TB, cfg ServerConfig) *Server {
	t.Helper()
	cfg.Secret, cfg.Binding = secret, binding
	s := Serve(listen(t), cfg)
	t.Cleanup(func() { s.Close() })
	return s
}

func dialConfig() DialConfig { return DialConfig{Secret: secret, Binding: binding, Name: "client"} }

// connect dials a server for the duration of the test.
func connect(t testing.TB, s *Server) *Client {
	t.Helper()
	return connectAs(t, s, "client")
}

func connectAs(t testing.TB, s *Server, name string) *Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	cfg := dialConfig()
	cfg.Name = name
	c, err := Dial(ctx, s.Addr().String(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// bounded returns a context for calls that should return at once.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	t.Cleanup(cancel)
	return ctx
}

// waiters returns how many calls wait for key in the store itself.
func (m *memory) waiters(key string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a, ok := m.arrivals[key]; ok {
		return a.waiting
	}
	return 0
}

// awaited returns how many keys are waited for.
func (m *memory) awaited() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.arrivals)
}
